"""One model under several names: what is accepted, listed, and said in answers."""

import json
from typing import Any

import httpx2
import pytest

from tests.gateway_harness import (
    CHAT,
    COMPLETIONS,
    Gateway,
    chat,
    completion,
    error_of,
    in_process,
    make_gateway,
)

NAMES = {"tiny": "tiny", "tiny-v2": "tiny", "gpt-4o-mini": "gpt-4o-mini"}


def make_named() -> Gateway:
    return make_gateway(other_names=["tiny-v2"], aliases=["gpt-4o-mini"])


def named_chunks(response: httpx2.Response) -> set[str]:
    lines = [line for line in response.text.splitlines() if line.startswith("data: {")]
    assert lines
    return {json.loads(line.removeprefix("data: "))["model"] for line in lines}


@pytest.mark.parametrize(("asked", "told"), NAMES.items())
@pytest.mark.parametrize(("path", "body"), [(CHAT, chat()), (COMPLETIONS, completion())])
async def test_answers_have_the_id_for_names_of_the_model_and_repeat_an_alias(
    asked: str, told: str, path: str, body: dict[str, Any]
) -> None:
    async with in_process(make_named()) as client:
        whole = await client.post(path, json=body | {"model": asked})
        stream = await client.post(path, json=body | {"model": asked, "stream": True})
    assert whole.json()["model"] == told
    assert named_chunks(stream) == {told}


async def test_every_name_is_listed_and_found_with_the_model_behind_it() -> None:
    async with in_process(make_named()) as client:
        cards = (await client.get("/v1/models")).json()["data"]
        single = [(await client.get(f"/v1/models/{name}")).json() for name in NAMES]
    assert [card["id"] for card in cards] == list(NAMES)
    assert {card["root"] for card in cards} == {"tiny"}
    assert cards == single


async def test_all_names_share_one_cache() -> None:
    gateway = make_named()
    async with in_process(gateway) as client:
        for name in NAMES:
            assert (await client.post(CHAT, json=chat() | {"model": name})).status_code == 200
    assert len({submit.namespace for submit in gateway.engine.submitted}) == 1


@pytest.mark.parametrize("asked", ["gpt-4o", "GPT-4o-mini", "tiny ", "", "x" * 5000])
async def test_unknown_model_is_a_404_that_lists_what_is_served(asked: str) -> None:
    gateway = make_named()
    async with in_process(gateway) as client:
        response = await client.post(CHAT, json=chat() | {"model": asked})
    error = error_of(response)
    assert (response.status_code, error["code"], error["param"]) == (
        404,
        "model_not_found",
        "model",
    )
    assert all(f"'{name}'" in error["message"] for name in NAMES)
    assert len(error["message"]) < 500
    assert gateway.engine.submitted == []
