"""A server that ends and starts again over the same cache folder, and two servers over one."""

import asyncio
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.target import Target
from tests.e2e.conftest import EXACT
from tests.e2e.server_process import POLL_S, ServerProcess, serving

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

COMPLETIONS = "/v1/completions"
KEY_A, KEY_B = "key-a", "key-b"
PAGE_SIZE = 16
STORED_WITHIN_S = 30.0


def serve(
    tiny_model: Path, folder: Path, **variables: str
) -> AbstractContextManager[tuple[ServerProcess, Target]]:
    return serving(*EXACT, model=str(tiny_model), cache_dir=str(folder), **variables)


async def ask(target: Target, about: str, **parameters: Any) -> tuple[int, int, str]:
    """Tokens of the prompt, those that were cached, and the answer."""
    body = target.completion(f"{about}: " + "all about it. " * 60, **parameters)
    async with target.http() as client:
        response = await client.post(COMPLETIONS, json=body)
    assert response.status_code == 200, response.text
    answer = response.json()
    usage = answer["usage"]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    return usage["prompt_tokens"], cached, answer["choices"][0]["text"]


def pages_in(folder: Path) -> list[Path]:
    return list(folder.glob("*/??/*"))


async def until_stored(folder: Path, num_pages: int) -> None:
    """Pages are written when nobody waits for an answer."""
    async with asyncio.timeout(STORED_WITHIN_S):
        while len(pages_in(folder)) < num_pages:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)


async def test_a_server_finds_what_it_had_computed_before_its_end(
    tiny_model: Path, tmp_path: Path
) -> None:
    """Each key finds its own, though nobody has set the secret that namespaces are made of."""
    keys = {"api_keys": f"{KEY_A},{KEY_B}"}
    with serve(tiny_model, tmp_path, **keys) as (_, target):
        prompt_tokens, before, text = await ask(replace(target, api_key=KEY_A), "rain")
        await until_stored(tmp_path, prompt_tokens // PAGE_SIZE)
    with serve(tiny_model, tmp_path, **keys) as (_, target):
        _, of_another, _ = await ask(replace(target, api_key=KEY_B), "rain")
        _, after, again = await ask(replace(target, api_key=KEY_A), "rain")
        _, unknown, _ = await ask(replace(target, api_key=KEY_A), "snow")
    assert (before, of_another, unknown) == (0, 0, 0)
    assert after == (prompt_tokens - 1) // PAGE_SIZE * PAGE_SIZE > 100
    assert again == text


async def test_what_was_flushed_is_gone_after_a_restart_too(
    tiny_model: Path, tmp_path: Path
) -> None:
    with serve(tiny_model, tmp_path) as (_, target):
        prompt_tokens, _, _ = await ask(target, "rain")
        await until_stored(tmp_path, prompt_tokens // PAGE_SIZE)
        async with target.http() as client:
            assert (await client.delete("/v1/cache")).status_code == 200
    assert pages_in(tmp_path) == []
    with serve(tiny_model, tmp_path) as (_, target):
        assert (await ask(target, "rain"))[1] == 0


async def test_a_second_server_finds_what_the_first_one_computes(
    tiny_model: Path, tmp_path: Path
) -> None:
    with (
        serve(tiny_model, tmp_path) as (_, first),
        serve(tiny_model, tmp_path) as (_, second),
    ):
        prompt_tokens, _, text = await ask(first, "rain")
        await until_stored(tmp_path, prompt_tokens // PAGE_SIZE)
        _, cached, again = await ask(second, "rain")
    assert cached == (prompt_tokens - 1) // PAGE_SIZE * PAGE_SIZE
    assert again == text
