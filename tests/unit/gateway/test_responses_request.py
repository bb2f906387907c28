"""The body of a Responses request: what is read, and what is refused where."""

from typing import Any

import pytest

from gateway.constraint_request import constraint_request
from gateway.errors import GatewayError, InvalidRequest
from gateway.schemas.response_items import (
    CallItem,
    CallOutputItem,
    InputText,
    Item,
    MessageItem,
    OutputText,
    ReasoningItem,
    ReasoningText,
    Refusal,
    output_id,
    response_id_of,
)
from gateway.schemas.responses_input import ItemReference, input_entries
from gateway.schemas.responses_request import ResponsesRequest, chosen_tools
from gateway.validation import validate

ID = "resp_" + "a" * 32
CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{broken"}
SCHEMA = {"type": "object", "properties": {"b": {}, "a": {}}}


def read(given: Any = "hi", **parameters: Any) -> ResponsesRequest:
    return validate(ResponsesRequest, {"model": "m", "input": given, **parameters})


def items(*given: Any) -> list[Item | ItemReference]:
    return list(input_entries(read(list(given)).input, response_id=ID))


def refusal_of(given: Any = "hi", **parameters: Any) -> GatewayError:
    with pytest.raises(InvalidRequest) as caught:
        chosen_tools(read(given, **parameters))
    return caught.value


def test_a_text_is_a_message_of_the_user() -> None:
    (item,) = input_entries(read("hi").input, response_id=ID)
    assert item == MessageItem(f"msg_{'a' * 32}_i0", "completed", "user", [InputText("hi")])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"role": "system", "content": "s"}, [InputText("s")]),
        ({"role": "developer", "content": [{"type": "input_text", "text": "d"}]}, [InputText("d")]),
        ({"type": None, "role": "user", "content": ""}, [InputText("")]),
        ({"role": "assistant", "content": "a"}, [OutputText("a")]),
        (
            {
                "type": "message",
                "role": "assistant",
                "status": "incomplete",
                "phase": "final_answer",
                "content": [
                    {"type": "output_text", "text": "a", "annotations": [], "logprobs": []},
                    {"type": "refusal", "refusal": "no"},
                ],
            },
            [OutputText("a"), Refusal("no")],
        ),
        ({"type": "message", "role": "assistant", "content": []}, []),
    ],
)
def test_every_shape_of_a_message_is_read(given: Any, expected: list[Any]) -> None:
    (item,) = items(given)
    assert isinstance(item, MessageItem)
    assert (item.content, item.role) == (expected, given["role"])
    assert item.status == given.get("status", "completed")


def test_calls_and_their_results_are_read_as_agents_send_them() -> None:
    output = {"type": "function_call_output", "call_id": "c1"}
    got = items(
        CALL,
        {**CALL, "id": "fc_1", "status": "incomplete", "arguments": {"é": 1}},
        {**output, "output": "sunny"},
        {**output, "output": [{"type": "input_text", "text": "a"}, {"type": "text", "text": "b"}]},
    )
    assert got == [
        CallItem(f"fc_{'a' * 32}_i0", "completed", "c1", "f", "{broken"),
        CallItem("fc_1", "incomplete", "c1", "f", '{"é": 1}'),
        CallOutputItem(f"fco_{'a' * 32}_i2", "completed", "c1", "sunny"),
        CallOutputItem(f"fco_{'a' * 32}_i3", "completed", "c1", [InputText("a"), InputText("b")]),
    ]


def test_replayed_thoughts_keep_their_text_and_lose_what_is_encrypted() -> None:
    (item, bare) = items(
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "short"}],
            "content": [{"type": "reasoning_text", "text": "long"}],
            "encrypted_content": "xyz",
        },
        {"type": "reasoning", "summary": []},
    )
    assert item == ReasoningItem("rs_1", "completed", content=[ReasoningText("long")])
    assert isinstance(bare, ReasoningItem)
    assert bare.content == []


def test_a_reference_may_leave_its_type_out() -> None:
    assert items({"type": "item_reference", "id": "x"}, {"id": "y"}) == [
        ItemReference(id="x"),
        ItemReference(id="y"),
    ]


def test_two_items_with_one_id_get_two() -> None:
    got = items({**CALL, "id": "fc_1"}, {**CALL, "id": "fc_1"})
    assert len({item.id for item in got}) == 2


def test_an_items_id_leads_to_its_response() -> None:
    assert response_id_of(output_id("message", ID, 3)) == ID
    assert response_id_of("msg_1") is None


@pytest.mark.parametrize(
    ("item", "code", "param"),
    [
        ({"type": "computer_call"}, "invalid_value", "type"),
        ({"type": "web_search_call", "id": "ws"}, "invalid_value", "type"),
        ({"type": ["message"]}, "invalid_value", "type"),
        ({"role": "tool", "content": "x"}, "invalid_value", "role"),
        ({"role": "user"}, "missing_required_parameter", "content"),
        ({"type": "message", "content": "x"}, "missing_required_parameter", "role"),
        ({"role": "user", "content": []}, "empty_array", "content"),
        (
            {"role": "user", "content": [{"type": "input_text"}]},
            "missing_required_parameter",
            "content[0].text",
        ),
        ({"role": "user", "content": [{"type": "poem"}]}, "invalid_value", "content[0].type"),
        ({**CALL, "arguments": 3}, "invalid_type", "arguments"),
        ({**CALL, "call_id": None}, "invalid_type", "call_id"),
        ({**CALL, "name": 1}, "invalid_type", "name"),
        ({"type": "item_reference", "id": 5}, "invalid_type", "id"),
    ],
)
def test_what_is_no_item_is_refused_by_its_place(item: Any, code: str, param: str) -> None:
    error = refusal_of([{"role": "user", "content": "fine"}, item])
    assert (error.code, error.param) == (code, f"input[1].{param}")


@pytest.mark.parametrize("kind", ["input_image", "input_file", "input_audio"])
@pytest.mark.parametrize(
    ("item", "place"),
    [
        ({"role": "user", "content": ...}, "content"),
        ({"type": "function_call_output", "call_id": "c", "output": ...}, "output"),
    ],
)
def test_media_are_refused_by_their_place(kind: str, item: Any, place: str) -> None:
    parts = [{"type": "input_text", "text": "x"}, {"type": kind, "image_url": "file:///etc"}]
    error = refusal_of([{key: parts if value is ... else value for key, value in item.items()}])
    assert (error.code, error.param) == ("unsupported_value", f"input[0].{place}[1].type")


@pytest.mark.parametrize(
    ("parameters", "code", "param"),
    [
        ({"input": []}, "empty_array", "input"),
        ({"input": 3}, "invalid_type", "input"),
        ({"input": None}, "invalid_type", "input"),
        ({"max_output_tokens": 0}, "integer_below_min_value", "max_output_tokens"),
        ({"temperature": "hot"}, "invalid_type", "temperature"),
        ({"top_logprobs": 2}, "invalid_value", "top_logprobs"),
        ({"top_logprobs": 21}, "integer_above_max_value", "top_logprobs"),
        ({"truncation": "middle"}, "invalid_value", "truncation"),
        ({"store": "yes"}, "invalid_type", "store"),
        ({"reasoning": {"effort": "huge"}}, "invalid_value", "reasoning.effort"),
        ({"text": {"format": {"type": "xml"}}}, "invalid_value", "text.format.type"),
        (
            {"text": {"format": {"type": "json_schema", "schema": SCHEMA}}},
            "missing_required_parameter",
            "text.format.name",
        ),
        (
            {"text": {"format": {"type": "json_schema", "name": "n"}}},
            "missing_required_parameter",
            "text.format.schema",
        ),
        (
            {"text": {"format": {"type": "json_object", "schema": SCHEMA}}},
            "invalid_value",
            "text.format.schema",
        ),
        (
            {"text": {"format": {"type": "json_object", "pattern": "x"}}},
            "unsupported_parameter",
            "text.format.pattern",
        ),
        ({"tools": [{"type": "web_search"}]}, "unsupported_value", "tools[0].type"),
        ({"tools": [{"type": "custom", "name": "x"}]}, "unsupported_value", "tools[0].type"),
        (
            {"tools": [{"type": "function", "function": {"name": "f"}}]},
            "missing_required_parameter",
            "tools[0].name",
        ),
        (
            {"tools": [{"type": "function", "name": "f", "parameters": {"type": "array"}}]},
            "invalid_function_parameters",
            "tools[0].parameters",
        ),
        ({"tool_choice": "required"}, "invalid_value", "tool_choice"),
        ({"tool_choice": {"type": "mcp"}}, "unsupported_value", "tool_choice.type"),
        ({"metadata": {"a": 1}}, "invalid_type", "metadata.a"),
        ({"metadata": {"a": "v" * 513}}, "string_above_max_length", "metadata.a"),
        ({"metadata": {"k" * 65: 1}}, "invalid_value", "metadata"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(
    parameters: dict[str, Any], code: str, param: str
) -> None:
    error = refusal_of(**{"given": "hi"} | _as_given(parameters))
    assert (error.code, error.param) == (code, param)


def _as_given(parameters: dict[str, Any]) -> dict[str, Any]:
    return {("given" if name == "input" else name): value for name, value in parameters.items()}


def test_an_empty_input_may_go_on_with_a_response() -> None:
    assert read([], previous_response_id=ID).input == []


def test_flat_tools_are_chosen_as_chats_are() -> None:
    tool = {"type": "function", "name": "f", "description": "d", "parameters": SCHEMA}
    request = read(
        tools=[{**tool, "strict": True}, {**tool, "name": "g"}],
        tool_choice={"type": "allowed_tools", "mode": "required", "tools": [{**tool}]},
        parallel_tool_calls=False,
    )
    chosen = chosen_tools(request)
    assert chosen.request is not None
    assert [(one.name, one.is_strict, one.param) for one in chosen.request.tools] == [
        ("f", True, "tools[0].parameters")
    ]
    assert (chosen.request.mode, chosen.request.max_calls) == ("required", 1)
    assert [shown["function"]["name"] for shown in chosen.shown] == ["f", "g"]


def test_the_schema_of_the_answer_keeps_its_key_order_and_its_name_in_errors() -> None:
    text = {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}}
    constraint = constraint_request(read(text=text))
    assert constraint is not None
    assert constraint.value == '{"type":"object","properties":{"b":{},"a":{}}}'
    assert (constraint.kind, constraint.param) == ("json_schema", "text.format")


def test_two_forms_of_one_answer_are_refused() -> None:
    text = {"format": {"type": "json_object"}}
    with pytest.raises(InvalidRequest, match=r"'text\.format' and 'guided_regex'"):
        constraint_request(read(text=text, guided_regex="a+"))


def test_what_is_not_included_is_named() -> None:
    request = read(include=["message.output_text.logprobs", "reasoning.encrypted_content"])
    assert request.wants_logprobs
    assert request.ignored_includes == ("include.reasoning.encrypted_content",)
