"""Which thoughts of an answer the next turn will have, and where it goes on otherwise."""

from typing import Any

import pytest

from gateway.cache_plan import NO_CUT, ThoughtCut
from gateway.chat_template import ChatTemplate
from gateway.generation import ChatPrompt, TextOptions
from gateway.kept_thoughts import KeptThoughts, ThoughtCuts, find_kept_thoughts
from gateway.reasoning import Markers
from gateway.tokenizer import Tokenizer
from tests.byte_tokenizer import CHATML
from tests.reasoning_model import (
    END_THINK,
    KEEPS,
    KEEPS_IN_ROUNDS,
    MAY_THINK,
    QWEN_LIKE,
    THINK,
    THINKS,
    THINKS_NOT,
    reasoning_assets,
    token_ids,
)

TOKENIZER = Tokenizer(reasoning_assets())
MARKERS = Markers(THINK, END_THINK)
USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (MAY_THINK, KeptThoughts(written=True)),
        (QWEN_LIKE, KeptThoughts()),
        (KEEPS, KeptThoughts(given=True, before_calls=True, empty=True)),
        (KEEPS_IN_ROUNDS, KeptThoughts(before_calls=True, written=True)),
        ("{{ raise_exception('nothing is like this') }}", KeptThoughts()),
    ],
)
def test_what_a_template_shows_of_thoughts(template: str, expected: KeptThoughts) -> None:
    found = find_kept_thoughts(ChatTemplate(template, {}), MARKERS, TOKENIZER)
    assert found == expected


def cut_of(
    template: str,
    *,
    opens: str | None = None,
    is_split: bool = True,
    tools: tuple[dict[str, Any], ...] = (),
    **options: bool,
) -> tuple[ThoughtCut, list[int]]:
    """The cut, and the prompt's tokens; `opens` is the template whose prompt it is."""
    cuts = ThoughtCuts(ChatTemplate(template, {}), MARKERS, TOKENIZER)
    prompt = ChatPrompt((USER,), tools=tools)
    ids = token_ids(ChatTemplate(opens or template, {}).render([USER]))
    return cuts.of(prompt, ids, options=TextOptions(**options), is_split=is_split), ids


def test_an_answer_is_cut_at_the_marker_with_which_it_may_begin() -> None:
    assert cut_of(MAY_THINK)[0] == ThoughtCut(dropped_from=THINK)
    assert cut_of(QWEN_LIKE)[0] == ThoughtCut(dropped_from=THINK)


@pytest.mark.parametrize("template", [THINKS, THINKS_NOT])
def test_a_block_that_the_template_began_is_cut_where_it_begins(template: str) -> None:
    cut, ids = cut_of(template)
    assert cut == ThoughtCut(keep_len=ids.index(THINK))


def test_what_the_template_keeps_is_not_cut() -> None:
    assert cut_of(KEEPS)[0] == NO_CUT
    assert cut_of(KEEPS, opens=THINKS_NOT)[0] == NO_CUT


def test_thoughts_that_nobody_is_shown_do_not_come_back() -> None:
    cut, _ = cut_of(KEEPS, shows_reasoning=False)
    assert cut == ThoughtCut(dropped_from=THINK)


def test_thoughts_that_are_left_in_the_text_stay_where_the_template_leaves_texts_alone() -> None:
    assert cut_of(MAY_THINK, is_split=False)[0] == NO_CUT
    assert cut_of(QWEN_LIKE, is_split=False)[0] == ThoughtCut(dropped_from=THINK)
    cut, ids = cut_of(THINKS, is_split=False)
    assert cut == ThoughtCut(keep_len=ids.index(THINK)), "the text begins behind the marker"


def test_thoughts_before_calls_stay_where_the_template_has_them_in_a_round_of_tools() -> None:
    assert cut_of(KEEPS_IN_ROUNDS)[0] == ThoughtCut(dropped_from=THINK)
    assert cut_of(KEEPS_IN_ROUNDS, tools=(TOOL,))[0] == NO_CUT


def test_a_marker_that_a_message_speaks_of_is_no_block() -> None:
    cuts = ThoughtCuts(ChatTemplate(MAY_THINK, {}), MARKERS, TOKENIZER)
    said = {"role": "user", "content": "<think>" + "x" * 50}
    ids = token_ids(ChatTemplate(CHATML, {}).render([said]) + "</think>")
    cut = cuts.of(ChatPrompt((said,)), ids, options=TextOptions(), is_split=True)
    assert cut == NO_CUT, "the last marker closes nothing that the template began"
