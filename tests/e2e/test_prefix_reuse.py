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


async def test_every_turn_finds_all_of_the_last_ones_prompt_and_answer(server: Target) -> None:
    messages: list[dict[str, str]] = []
    known = 0
    async with server.http() as client:
        # Not harbours: the model spells them with other tokens than the tokenizer reads.
        for topic in ("the sea", "ships", "rain", "snow"):
            messages.append({"role": "user", "content": f"Tell me about {topic}, please."})
            answer = await ask(client, server, messages)
            usage = answer["usage"]
            assert cached(answer) >= known
            written = usage["prompt_tokens_details"]["cache_write_tokens"]
            assert cached(answer) + written == usage["prompt_tokens"]
            # The token that ended the answer was never computed.
            known = usage["prompt_tokens"] + usage["completion_tokens"] - 1
            said = answer["choices"][0]["message"]["content"]
            messages.append({"role": "assistant", "content": said})


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
