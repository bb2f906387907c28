"""Suffixes: the tokens of models that fill in a middle, and the prompt they make."""

from typing import Any

import pytest

from gateway.fill_in_middle import find_fim_tokens
from gateway.tokenizer import Tokenizer
from runtime.text_assets import TextAssets
from tests.byte_tokenizer import byte_assets, with_added_tokens
from tests.gateway_harness import COMPLETIONS, completion, error_of, in_process, make_gateway

PRE, SUF, MID, PAD = 263, 264, 265, 266
QWEN = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|fim_pad|>")


def assets(*texts: str) -> TextAssets:
    return with_added_tokens(byte_assets(), *texts)


@pytest.mark.parametrize(
    "texts",
    [
        QWEN[:3],
        ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
        ("\u2581<PRE>", "\u2581<SUF>", "\u2581<MID>"),
    ],
)
def test_the_middle_comes_after_the_suffix(texts: tuple[str, ...]) -> None:
    found = find_fim_tokens(Tokenizer(assets(*texts)))
    assert found is not None
    assert found.prompt([1, 2], [3]) == (PRE, 1, 2, SUF, 3, MID)


def test_a_hole_stands_between_prefix_and_suffix() -> None:
    begin, hole, end = (f"<\uff5cfim\u2581{part}\uff5c>" for part in ("begin", "hole", "end"))
    found = find_fim_tokens(Tokenizer(assets(begin, hole, end)))
    assert found is not None
    assert found.prompt([1], [2]) == (PRE, 1, SUF, 2, MID)


@pytest.mark.parametrize("texts", [(), QWEN[:2], QWEN[1:3]])
def test_without_all_three_tokens_there_is_no_middle(texts: tuple[str, ...]) -> None:
    assert find_fim_tokens(Tokenizer(assets(*texts))) is None


async def submitted(**parameters: Any) -> Any:
    gateway = make_gateway(assets=assets(*QWEN))
    async with in_process(gateway) as client:
        response = await client.post(COMPLETIONS, json=completion("ab", **parameters))
    assert response.status_code == 200, error_of(response)
    return gateway.engine.submitted[0]


async def test_a_suffix_makes_the_prompt_and_ends_where_another_file_would_begin() -> None:
    submit = await submitted(suffix="yz", stop_token_ids=[5])
    assert submit.prompt_token_ids == [PRE, *b"ab", SUF, *b"yz", MID]
    assert submit.sampling.stop_token_ids == (5, PRE, SUF, MID, PAD)


async def test_an_empty_suffix_is_none() -> None:
    submit = await submitted(suffix="")
    assert submit.prompt_token_ids == list(b"ab")
    assert submit.sampling.stop_token_ids == ()
