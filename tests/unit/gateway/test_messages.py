"""Message shapes that clients really send."""

from typing import Any

import pytest

from gateway.errors import InvalidRequest
from gateway.schemas.chat_request import ChatCompletionRequest
from gateway.validation import validate

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TEXT_PART = {"type": "text", "text": "hi"}


def messages(*given: dict[str, Any]) -> list[dict[str, Any]]:
    fields = validate(ChatCompletionRequest, {"model": "m", "messages": list(given)})
    return [message.as_dict() for message in fields.messages]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "system", "content": "x"},
        {"role": "developer", "content": "x"},
        {"role": "user", "content": "x", "name": "ann"},
        {"role": "user", "content": [TEXT_PART, TEXT_PART]},
        {"role": "assistant", "content": "x"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "assistant", "tool_calls": [CALL]},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "assistant", "content": None, "refusal": "no"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
        {"role": "assistant", "content": "x", "audio": None, "annotations": []},
        {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "assistant", "content": None, "reasoning_content": "Hm."},
        {"role": "tool", "content": "5", "tool_call_id": "c1"},
        {"role": "tool", "content": None, "tool_call_id": "c1"},
        {"role": "tool", "content": [TEXT_PART], "tool_call_id": "c1"},
        {"role": "function", "content": "5", "name": "f"},
    ],
)
def test_shape_is_accepted_and_kept(message: dict[str, Any]) -> None:
    (kept,) = messages(message)
    expected = {key: value for key, value in message.items() if value is not None}
    expected.pop("annotations", None)
    assert kept == expected


def test_tool_arguments_may_be_an_object() -> None:
    call = {**CALL, "function": {"name": "f", "arguments": {"a": 1}}}
    (kept,) = messages({"role": "assistant", "tool_calls": [call]})
    assert kept["tool_calls"][0]["function"]["arguments"] == {"a": 1}


def test_tool_arguments_may_be_null_or_missing() -> None:
    for function in ({"name": "f", "arguments": None}, {"name": "f"}):
        (kept,) = messages({"role": "assistant", "tool_calls": [{**CALL, "function": function}]})
        assert kept["tool_calls"][0]["function"].get("arguments") in (None, "")


def calling(arguments: Any) -> dict[str, Any]:
    function = {"name": "f", "arguments": arguments}
    return {"role": "assistant", "tool_calls": [{**CALL, "function": function}]}


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "user", "content": None}, "messages[0].content"),
        ({"role": "assistant", "content": None}, "messages[0].content"),
        ({"role": "user", "content": []}, "messages[0].content"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text"),
        ({"role": "user", "content": [{"text": "x"}]}, "messages[0].content[0].type"),
        ({"role": "user", "content": ["x"]}, "messages[0].content[0]"),
        ({"role": "user", "content": [{"type": "file"}]}, "messages[0].content[0].type"),
        ({"role": "assistant", "tool_calls": [{}]}, "messages[0].tool_calls[0].function"),
        (calling([]), "messages[0].tool_calls[0].function.arguments"),
        (calling(5), "messages[0].tool_calls[0].function.arguments"),
        ({"role": "tool", "content": "x"}, "messages[0].tool_call_id"),
        ({"role": 5, "content": "x"}, "messages[0].role"),
    ],
)
def test_wrong_shape_is_named(message: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        messages(message)
    assert caught.value.param == param
