"""What the second request with a prefix reports, over HTTP and with the default model."""

from typing import Any

import httpx2
import pytest

from tests.conformance.target import Target
from tests.e2e.scrape import scrape
from tests.model_file import needs_model

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180), needs_model]

CHAT = "/v1/chat/completions"
COMPUTED = "radixgate_computed_prompt_tokens_total"
MAX_COMPUTED = 26
# 1,400 tokens of this vocabulary, as the test checks.
RULES = " ".join(f"Rule {n}: be brief, be kind, and never mention number {n}." for n in range(75))


async def ask(
    client: httpx2.AsyncClient, target: Target, messages: list[dict[str, str]]
) -> dict[str, Any]:
    body = target.chat(messages=messages, max_tokens=24)
    response = await client.post(CHAT, json=body, timeout=120)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def cached(answer: dict[str, Any]) -> int:
    tokens: int = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    return tokens


def with_rules(question: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": RULES}, {"role": "user", "content": question}]


async def test_a_long_system_prompt_is_computed_once(server: Target) -> None:
    async with server.http() as client:
        first = await ask(client, server, with_rules("What is the sum of 2 and 3?"))
        before = (await scrape(client))[COMPUTED]
        second = await ask(client, server, with_rules("What is your favourite colour?"))
        computed = (await scrape(client))[COMPUTED] - before
    assert first["usage"]["prompt_tokens"] >= 1400
    assert cached(first) < 100
    assert cached(second) >= 1390
    assert computed == second["usage"]["prompt_tokens"] - cached(second)
    assert computed <= MAX_COMPUTED


async def test_the_next_turn_reuses_the_answers_tokens(server: Target) -> None:
    messages = [{"role": "user", "content": "Tell me about the sea, and then about ships."}]
    async with server.http() as client:
        first = await ask(client, server, messages)
        said = first["choices"][0]["message"]["content"]
        second = await ask(
            client,
            server,
            [
                *messages,
                {"role": "assistant", "content": said},
                {"role": "user", "content": "And now about harbours."},
            ],
        )
    usage = first["usage"]
    assert cached(second) >= usage["prompt_tokens"] + usage["completion_tokens"] - 2


async def test_a_warm_answer_is_the_cold_one(server: Target) -> None:
    messages = with_rules("Name three rivers.")
    async with server.http() as client:
        warm = await ask(client, server, messages)
        again = await ask(client, server, messages)
        body = server.chat(messages=messages, max_tokens=24, cache_salt="never used before")
        cold = (await client.post(CHAT, json=body, timeout=120)).json()
    assert cached(cold) == 0
    assert cached(again) == again["usage"]["prompt_tokens"] - 1
    texts = {answer["choices"][0]["message"]["content"] for answer in (warm, again, cold)}
    assert len(texts) == 1
