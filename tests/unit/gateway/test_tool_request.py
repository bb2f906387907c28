"""What a request shows of its tools and which calls it allows, and how it is refused."""

import json
from typing import Any

import pytest

from gateway.errors import GatewayError
from gateway.schemas.tools import ToolFields, chosen_tools
from gateway.tools.request import (
    MAX_TOOLS,
    AllowedTools,
    ChosenTools,
    FunctionTool,
    NamedTool,
    choose_tools,
    parse_choice,
)
from gateway.validation import validate

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def tool(name: str = "weather", **function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **function}}


def chosen(*tools: dict[str, Any], **fields: Any) -> ChosenTools:
    return chosen_tools(validate(ToolFields, {"tools": list(tools), **fields}))


def refused(body: dict[str, Any]) -> tuple[str | None, str | None, int]:
    with pytest.raises(GatewayError) as caught:
        chosen_tools(validate(ToolFields, body))
    return caught.value.code, caught.value.param, caught.value.status


def names_of(found: ChosenTools) -> list[str]:
    assert found.request is not None
    return [tool.name for tool in found.request.tools]


def test_tools_without_a_choice_may_be_called_any_number_of_times() -> None:
    found = chosen(tool("weather", parameters=CITY), tool("time"))
    assert found.request is not None
    assert (found.request.mode, found.request.max_calls) == ("auto", None)
    assert names_of(found) == ["weather", "time"]
    assert not found.is_named


@pytest.mark.parametrize("choice", [None, "none", "auto"])
@pytest.mark.parametrize("tools", [None, []])
def test_without_tools_nothing_is_shown_and_nothing_parsed(
    choice: str | None, tools: list[Any] | None
) -> None:
    body = {"tools": tools, "tool_choice": choice, "parallel_tool_calls": False}
    assert chosen_tools(validate(ToolFields, body)) == ChosenTools()


def test_the_choice_of_none_shows_no_tools() -> None:
    assert chosen(tool(), tool_choice="none") == ChosenTools()


def test_a_named_tool_is_called_once_while_all_are_shown() -> None:
    choice = {"type": "function", "function": {"name": "time"}}
    found = chosen(tool("weather"), tool("time"), tool_choice=choice)
    assert found.request is not None
    assert (found.request.mode, found.request.max_calls) == ("named", 1)
    assert (names_of(found), found.is_named) == (["time"], True)
    assert [shown["function"]["name"] for shown in found.shown] == ["weather", "time"]


def test_calls_that_are_not_parallel_are_one_at_most() -> None:
    found = chosen(tool(), tool_choice="required", parallel_tool_calls=False)
    assert found.request is not None
    assert (found.request.mode, found.request.max_calls) == ("required", 1)


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [tool("time")]}},
        {
            "type": "allowed_tools",
            "mode": "required",
            "tools": [{"type": "function", "name": "time"}, {"type": "function", "name": "time"}],
        },
    ],
)
def test_allowed_tools_are_called_and_all_are_shown(choice: dict[str, Any]) -> None:
    found = chosen(tool("weather"), tool("time"), tool_choice=choice)
    assert found.request is not None
    assert (found.request.mode, names_of(found), len(found.shown)) == ("required", ["time"], 2)


def test_the_schema_keeps_the_order_of_its_keys_and_is_one_of_an_object() -> None:
    parameters = {"properties": {"b": {"type": "integer"}, "a": {}}, "type": ["object", "null"]}
    found = chosen(tool(parameters=parameters, strict=True))
    assert found.request is not None
    given = found.request.tools[0]
    assert given.parameters == '{"type":"object","properties":{"b":{"type":"integer"},"a":{}}}'
    assert (given.is_strict, given.param) == (True, "tools[0].function.parameters")


def test_a_tool_without_parameters_takes_none() -> None:
    found = chosen(tool("now"))
    assert found.request is not None
    schema = json.loads(found.request.tools[0].parameters)
    assert schema == {"type": "object", "properties": {}, "additionalProperties": False}
    assert found.shown == (tool("now", parameters={"type": "object", "properties": {}}),)


def test_a_template_is_shown_what_tells_a_model_something() -> None:
    found = chosen(tool("weather", parameters=CITY, strict=True, description="Of a city."))
    assert found.shown == (tool("weather", description="Of a city.", parameters=CITY),)
    assert list(found.shown[0]["function"]) == ["name", "description", "parameters"]


ALLOWED = "tool_choice.allowed_tools"


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"tools": [{"type": "custom", "custom": {"name": "x"}}]},
         "unsupported_value", "tools[0].type"),
        ({"tools": [{"function": {"name": "x"}}]}, "missing_required_parameter", "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "missing_required_parameter", "tools[0].function"),
        ({"tools": [tool(), tool("a b")]}, "invalid_value", "tools[1].function.name"),
        ({"tools": [tool("a\n")]}, "invalid_value", "tools[0].function.name"),
        ({"tools": [tool("x" * 65)]}, "invalid_value", "tools[0].function.name"),
        ({"tools": [tool(""), tool()]}, "invalid_value", "tools[0].function.name"),
        ({"tools": [tool(), tool("a"), tool()]}, "invalid_value", "tools[2].function.name"),
        ({"tools": [tool(parameters=[])]}, "invalid_type", "tools[0].function.parameters"),
        ({"tools": [tool(parameters={"type": "array"})]},
         "invalid_function_parameters", "tools[0].function.parameters"),
        ({"tools": [tool(strict="yes")]}, "invalid_type", "tools[0].function.strict"),
        ({"tools": [tool(str(i)) for i in range(MAX_TOOLS + 1)]},
         "array_above_max_length", "tools"),
        ({"tools": tool()}, "invalid_type", "tools"),
        ({"tool_choice": "required"}, "invalid_value", "tool_choice"),
        ({"tools": [], "tool_choice": tool()}, "invalid_value", "tool_choice"),
        ({"tools": [tool()], "tool_choice": "any"}, "invalid_value", "tool_choice"),
        ({"tools": [tool()], "tool_choice": 3}, "invalid_type", "tool_choice"),
        ({"tools": [tool()], "tool_choice": tool("other")}, "invalid_value", "tool_choice"),
        ({"tools": [tool()], "tool_choice": {}}, "missing_required_parameter", "tool_choice.type"),
        ({"tools": [tool()], "tool_choice": {"type": 3}}, "invalid_value", "tool_choice.type"),
        ({"tools": [tool()], "tool_choice": {"type": "custom", "custom": {"name": "weather"}}},
         "unsupported_value", "tool_choice.type"),
        ({"tools": [tool()], "tool_choice": {"type": "function", "function": {}}},
         "missing_required_parameter", "tool_choice.function.name"),
        ({"tools": [tool()], "tool_choice": {"type": "allowed_tools"}},
         "invalid_value", "tool_choice.mode"),
        ({"tools": [tool()], "tool_choice": {"type": "allowed_tools", "allowed_tools":
          {"mode": "auto"}}}, "missing_required_parameter", f"{ALLOWED}.tools"),
        ({"tools": [tool()], "tool_choice": {"type": "allowed_tools", "allowed_tools":
          {"mode": "auto", "tools": []}}}, "empty_array", f"{ALLOWED}.tools"),
        ({"tools": [tool()], "tool_choice": {"type": "allowed_tools", "allowed_tools":
          {"mode": "auto", "tools": [tool(), 1]}}}, "invalid_type", f"{ALLOWED}.tools[1]"),
        ({"tools": [tool()], "tool_choice": {"type": "allowed_tools", "allowed_tools":
          {"mode": "auto", "tools": [{"type": "mcp"}]}}},
         "unsupported_value", f"{ALLOWED}.tools[0].type"),
        ({"tools": [tool()], "tool_choice": {"type": "allowed_tools", "allowed_tools":
          {"mode": "auto", "tools": [tool("other")]}}}, "invalid_value", "tool_choice"),
        ({"tools": [tool()], "parallel_tool_calls": 1}, "invalid_type", "parallel_tool_calls"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_refused_by_its_name(body: dict[str, Any], code: str, param: str) -> None:
    assert refused(body) == (code, param, 400)


def test_a_choice_is_read_alike_for_every_endpoint() -> None:
    assert parse_choice({"type": "function", "name": "f"}) == NamedTool("f")
    functions = [FunctionTool("f", param="tools[0]"), FunctionTool("g", param="tools[1]")]
    found = choose_tools(functions, AllowedTools("auto", ("g",)))
    assert found.request is not None
    assert found.request.mode == "auto"
    assert [(tool.name, tool.param) for tool in found.request.tools] == [
        ("g", "tools[1].parameters")
    ]
