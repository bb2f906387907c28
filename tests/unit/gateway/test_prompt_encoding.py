"""How the size of a prompt is told before anything is made of it."""

from typing import Any

import pytest

from gateway.generation import ChatPrompt, TextPrompt
from gateway.prompt_encoding import OVERHEAD_CHARS, num_chars

LONG = "a" * 1_000
HI: dict[str, Any] = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": LONG},
        {"role": "user", "content": [{"type": "text", "text": LONG}]},
        {"role": "assistant", "reasoning_content": LONG},
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": LONG}}]},
        {
            "role": "assistant",
            "tool_calls": [{"function": {"name": "f", "arguments": {"x": LONG}}}],
        },
    ],
)
def test_all_that_a_message_says_counts(message: dict[str, Any]) -> None:
    assert num_chars(ChatPrompt((HI, message)), enough=10_000) > len(LONG)


def test_tools_count() -> None:
    tool = {"type": "function", "function": {"name": "f", "description": LONG}}
    assert num_chars(ChatPrompt((HI,), (tool,)), enough=10_000) > len(LONG)


def test_a_text_and_its_suffix_count() -> None:
    assert num_chars(TextPrompt("ab", suffix="c"), enough=0) == OVERHEAD_CHARS + 3


def test_no_more_is_counted_than_is_enough() -> None:
    counted = num_chars(ChatPrompt((HI,) * 100_000), enough=5_000)
    assert 5_000 < counted < 6_000
