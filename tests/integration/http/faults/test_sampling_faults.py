"""Faults of sampling that other servers were reported for: token ids outside of the vocabulary that
reach the engine, limits that are not honoured."""

import asyncio
from typing import Any

import httpx2
import pytest

from tests.byte_tokenizer import VOCAB_SIZE
from tests.gateway_harness import (
    BODIES,
    CHAT,
    COMPLETIONS,
    RESPONSES,
    completion,
    error_of,
)
from tests.whole_path import byte_engine, serving

BAD_IDS = (-1, VOCAB_SIZE, 99_999_999, 10**9, 2**31, 2**63)


def out_of_vocabulary() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{"logit_bias": {"abc": 5}}, {"logit_bias": {"1.5": 5}}]
    for bad_id in BAD_IDS:
        found += [
            {"logit_bias": {str(bad_id): 5}},
            {"stop_token_ids": [bad_id], "min_tokens": 5},
            {"stop_token_ids": [5, bad_id]},
            {"allowed_token_ids": [bad_id]},
        ]
    return found


def said(answer: httpx2.Response) -> str:
    assert answer.status_code == 200, answer.text
    text: str = answer.json()["choices"][0]["text"]
    return text


@pytest.mark.parametrize("path", BODIES)
async def test_a_token_outside_of_the_vocabulary_is_a_400_and_harms_no_neighbour(path: str) -> None:
    """vllm#16529, #6866, #54195, sglang#7670, #28088: the engine died for everyone, or the number
    was written into the logits of whoever stood beside it."""
    asked = completion("Neighbour", max_tokens=60, ignore_eos=True, seed=4)
    async with serving(byte_engine()) as server, server.client() as client:
        alone = said(await client.post(COMPLETIONS, json=asked))
        server.engine.hold()
        running = asyncio.create_task(client.post(COMPLETIONS, json={**asked, "cache_salt": "b"}))
        for parameters in out_of_vocabulary():
            await server.engine.step()
            answer = await client.post(path, json=BODIES[path](**parameters))
            assert answer.status_code == 400, parameters
            error = error_of(answer)
            assert error["param"].split("[")[0].split(".")[0] == next(iter(parameters))
        assert not running.done()
        server.engine.release()
        assert said(await running) == alone
        assert len(server.engine.submitted) == 2
        assert said(await client.post(COMPLETIONS, json={**asked, "cache_salt": "c"})) == alone
        server.engine.assert_idle()


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (CHAT, "max_tokens"),
        (CHAT, "max_completion_tokens"),
        (CHAT, "n_predict"),
        (COMPLETIONS, "max_tokens"),
        (COMPLETIONS, "n_predict"),
        (RESPONSES, "max_output_tokens"),
    ],
)
async def test_an_endless_answer_stops_at_its_limit_under_every_name(path: str, name: str) -> None:
    """ollama#18575, llama-cpp-python#1907, ik_llama.cpp#2321"""
    async with serving(byte_engine()) as server, server.client() as client:
        for limit in (1, 5):
            body = BODIES[path](ignore_eos=True, **{name: limit})
            answer = (await client.post(path, json=body)).json()
            if path == RESPONSES:
                assert answer["incomplete_details"] == {"reason": "max_output_tokens"}
                assert answer["usage"]["output_tokens"] == limit
            else:
                assert answer["choices"][0]["finish_reason"] == "length"
                assert answer["usage"]["completion_tokens"] == limit
        assert server.engine.runtime.stats().generated_tokens == 6
