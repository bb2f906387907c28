"""The parser of calls: the same result for every way to cut a text, and nothing of it lost."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.tools.dialect import Dialect
from tests.unit.gateway.test_tool_parser import CALLS, DIALECTS, WRAPPED, joined, parser

MARKS = (
    "<tool_call>", "</tool_call>", "\n", '{"name": "', "weather", '", "arguments": ', "{}", "}",
    '", "parameters": ', "[", "]", "now(", ")", "[TOOL_CALLS]", "[ARGS]", "<|tool_call|>", ", ",
    "; ", "functools", "é", '"', "\\", "a=1", "<", "<|tool_call_start|>",
    "```json", "```", "<tools>", "</tools>", "{", ",", '"name": "now"', '"arguments": {', " ",
)  # fmt: skip
TEXTS = st.lists(st.sampled_from(MARKS) | st.text(max_size=3), max_size=14).map("".join)


@st.composite
def blocks(draw: st.DrawFn, dialect: Dialect) -> str:
    """Mostly what a model writes, with something before, after or missing."""
    calls = draw(st.lists(st.sampled_from(CALLS), min_size=1, max_size=3))
    wrapped = draw(st.sampled_from([text for text, _ in WRAPPED]))
    block = draw(st.sampled_from([dialect.block(calls), wrapped]))
    cut = draw(st.integers(0, 40))
    return f"{draw(TEXTS)}{block[: len(block) - cut]}{draw(TEXTS)}"


def in_pieces(
    dialect: Dialect, text: str, places: list[int], *, at_start: bool
) -> tuple[str, list[tuple[str, str]], int, bool]:
    reader = parser(dialect, at_start=at_start)
    bounds = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    parts = [reader.feed(text[start:end]) for start, end in zip(bounds, bounds[1:], strict=False)]
    result = joined(*parts, reader.finish())
    return (*result, reader.num_complete_calls, reader.is_truncated)


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data(), places=st.lists(st.integers(0, 1000), max_size=6), at_start=st.booleans())
def test_every_way_to_cut_a_text_gives_the_same(
    dialect: Dialect, data: st.DataObject, places: list[int], *, at_start: bool
) -> None:
    text = data.draw(blocks(dialect) | TEXTS)
    whole = in_pieces(dialect, text, [], at_start=at_start)
    assert in_pieces(dialect, text, places, at_start=at_start) == whole
    assert in_pieces(dialect, text, list(range(len(text))), at_start=at_start) == whole


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(text=TEXTS, at_start=st.booleans())
def test_a_text_without_calls_loses_no_character(
    dialect: Dialect, text: str, *, at_start: bool
) -> None:
    content, calls, *_ = in_pieces(dialect, text, [], at_start=at_start)
    if not calls:
        assert content == text
