"""Content of traces: the shape of the conventions, and never longer than it may be."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.generation import (
    ChatPrompt,
    ChoiceFinished,
    GenerationRequest,
    Prompt,
    TextDelta,
    TextPrompt,
)
from gateway.tools.calls import ToolFragment
from gateway.trace_content import AnswerContent, request_content
from runtime.messages import Sampling
from telemetry import names

LIMIT = 10_000
CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city": "Paris"}'},
}
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def asked(*prompts: Prompt) -> GenerationRequest:
    return GenerationRequest("r", prompts, Sampling(max_tokens=1), None)


def chat(*messages: dict[str, Any], tools: tuple[dict[str, Any], ...] = ()) -> GenerationRequest:
    return asked(ChatPrompt(messages, tools=tools))


def content(
    request: GenerationRequest, *, instructions: str | None = None, limit: int = LIMIT
) -> dict[str, Any]:
    attributes = request_content(request, instructions, limit)
    return {name: json.loads(text) for name, text in attributes.items()}


def test_messages_of_all_roles_have_the_parts_of_the_conventions() -> None:
    shown = content(
        chat(
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [{"type": "text", "text": "Weather in "}, {"text": "Paris?"}],
            },
            {"role": "assistant", "reasoning_content": "A tool.", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call_1", "content": "rainy"},
        )
    )
    assert shown == {
        names.GEN_AI_INPUT_MESSAGES: [
            {"role": "system", "parts": [{"type": "text", "content": "Be brief."}]},
            {"role": "user", "parts": [{"type": "text", "content": "Weather in Paris?"}]},
            {
                "role": "assistant",
                "parts": [
                    {"type": "reasoning", "content": "A tool."},
                    {
                        "type": "tool_call",
                        "id": "call_1",
                        "name": "weather",
                        "arguments": {"city": "Paris"},
                    },
                ],
            },
            {
                "role": "tool",
                "parts": [{"type": "tool_call_response", "id": "call_1", "response": "rainy"}],
            },
        ]
    }


def test_instructions_that_came_apart_are_no_message() -> None:
    request = chat({"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"})
    shown = content(request, instructions="Be brief.")
    assert shown[names.GEN_AI_SYSTEM_INSTRUCTIONS] == [{"type": "text", "content": "Be brief."}]
    assert [message["role"] for message in shown[names.GEN_AI_INPUT_MESSAGES]] == ["user"]


def test_tools_are_definitions() -> None:
    shown = content(chat({"role": "user", "content": "Hi"}, tools=(TOOL,)))
    function: Any = TOOL["function"]
    assert shown[names.GEN_AI_TOOL_DEFINITIONS] == [{"type": "function", **function}]


def test_prompts_without_a_conversation_are_messages_of_the_user() -> None:
    shown = content(asked(TextPrompt("Once"), TextPrompt(token_ids=(1, 2, 3))))
    texts = [message["parts"][0]["content"] for message in shown[names.GEN_AI_INPUT_MESSAGES]]
    assert texts == ["Once", "[cut: 3 token ids]"]


def test_of_a_long_conversation_the_last_messages_are_shown() -> None:
    messages = [{"role": "user", "content": f"{number} " + "x" * 200} for number in range(100)]
    first, *others = content(chat(*messages), limit=2_000)[names.GEN_AI_INPUT_MESSAGES]
    assert first["parts"] == [{"type": "text", "content": f"[cut: {100 - len(others)} messages]"}]
    assert 2 <= len(others) < 10
    assert others[-1]["parts"][0]["content"].startswith("99 x")


def test_a_long_text_ends_in_a_mark_that_says_how_much_is_missing() -> None:
    (message,) = content(chat({"role": "user", "content": "x" * 5_000}), limit=1_000)[
        names.GEN_AI_INPUT_MESSAGES
    ]
    text = message["parts"][0]["content"]
    kept = text.count("x")
    assert 500 < kept < 1_000
    assert text == "x" * kept + f"[cut: {5_000 - kept} characters]"


def test_arguments_that_are_no_json_are_a_text() -> None:
    call = {"id": "1", "function": {"name": "f", "arguments": '{"city": "Par'}}
    (message,) = content(chat({"role": "assistant", "tool_calls": [call]}))[
        names.GEN_AI_INPUT_MESSAGES
    ]
    assert message["parts"][0]["arguments"] == '{"city": "Par'


def test_many_calls_are_cut_as_well() -> None:
    (message,) = content(chat({"role": "assistant", "tool_calls": [CALL] * 500}), limit=2_000)[
        names.GEN_AI_INPUT_MESSAGES
    ]
    *shown, mark = message["parts"]
    assert mark == {"type": "text", "content": f"[cut: {500 - len(shown)} calls]"}
    assert 2 <= len(shown) < 10


TEXTS = st.text(st.characters(codec=None), max_size=300)
CALLS = st.builds(
    lambda name, arguments: {"id": name, "function": {"name": name, "arguments": arguments}},
    TEXTS,
    TEXTS,
)
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "system"])},
    optional={
        "content": TEXTS,
        "reasoning_content": TEXTS,
        "tool_call_id": TEXTS,
        "tool_calls": st.lists(CALLS, max_size=3),
    },
)


@given(st.lists(MESSAGES, max_size=12), st.integers(0, 3_000))
@settings(derandomize=True, max_examples=60, deadline=None)
def test_it_is_json_of_a_bounded_length_whatever_was_said(
    messages: list[dict[str, Any]], limit: int
) -> None:
    (text,) = request_content(chat(*messages), None, limit).values()
    assert isinstance(json.loads(text), list)
    # Marks and the structure of one message that began while there was room.
    assert len(text) <= limit + 1_200


def answer(*events: TextDelta | ChoiceFinished, unfinished: str = "error") -> list[dict[str, Any]]:
    collected = AnswerContent()
    for event in events:
        collected.event(event)
    attributes = collected.attributes(unfinished, LIMIT)
    shown: list[dict[str, Any]] = json.loads(attributes[names.GEN_AI_OUTPUT_MESSAGES])
    return shown


def test_an_answer_is_a_message_for_each_choice_in_their_order() -> None:
    shown = answer(
        TextDelta(1, "B"),
        TextDelta(0, "", reasoning="Hm."),
        TextDelta(0, "A"),
        TextDelta(0, "1"),
        ChoiceFinished(0, "stop"),
        ChoiceFinished(1, "length"),
    )
    assert shown == [
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": "Hm."},
                {"type": "text", "content": "A1"},
            ],
            "finish_reason": "stop",
        },
        {
            "role": "assistant",
            "parts": [{"type": "text", "content": "B"}],
            "finish_reason": "length",
        },
    ]


def test_calls_of_an_answer_are_joined() -> None:
    fragments = (ToolFragment(0, "c1", "weather"), ToolFragment(0, arguments='{"city":"Bonn"}'))
    (message,) = answer(TextDelta(0, "", tool_calls=fragments), ChoiceFinished(0, "tool_calls"))
    assert message["finish_reason"] == "tool_call"
    assert message["parts"] == [
        {"type": "tool_call", "id": "c1", "name": "weather", "arguments": {"city": "Bonn"}}
    ]


@pytest.mark.parametrize("ending", ["aborted", "error"])
def test_what_was_said_before_an_early_end_is_shown_with_its_reason(ending: str) -> None:
    (message,) = answer(TextDelta(0, "Half"), unfinished=ending)
    assert message["finish_reason"] == ending


def test_where_nothing_was_said_there_is_nothing() -> None:
    assert AnswerContent().attributes("error", LIMIT) == {}
