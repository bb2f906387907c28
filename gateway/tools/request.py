"""Which tools a request shows to the model, and which calls it allows or demands.

Knows the words of the API, yet no endpoint: the schemas of chat and of Responses bring their
functions and their `tool_choice` here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from gateway.errors import InvalidConstraint, InvalidRequest
from gateway.tools.calls import Tool, ToolMode, ToolRequest

# A structural tag has as many tags. OpenAI takes 128, which agents with a few MCP servers exceed.
MAX_TOOLS = 1024
NAME_PATTERN = r"^[A-Za-z0-9_-]{1,64}$"
# Of a tool without parameters: a template shows them, a grammar keeps them empty.
_NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}
_CLOSED: dict[str, Any] = {**_NO_PARAMETERS, "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """A function as a request defines it. `param` is where it stands, with `parameters` below."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    param: str = "tools"


@dataclass(frozen=True, slots=True)
class NamedTool:
    """Exactly one call, of this function."""

    name: str


@dataclass(frozen=True, slots=True)
class AllowedTools:
    """Only these functions may be called. The others stay in the prompt, which therefore begins
    as those of other requests do: that is what this choice is for."""

    mode: Literal["auto", "required"]
    names: tuple[str, ...]


ToolChoice = Literal["none", "auto", "required"] | NamedTool | AllowedTools


@dataclass(frozen=True, slots=True)
class ChosenTools:
    """`shown` are for the chat template, in the shape of chat requests. Without `request` nothing
    in the answer is a call, whatever it looks like."""

    shown: tuple[dict[str, Any], ...] = ()
    request: ToolRequest | None = None
    is_named: bool = False


def choose_tools(
    functions: Sequence[FunctionTool],
    choice: ToolChoice | None,
    *,
    parallel: bool | None = None,
    param: str = "tool_choice",
) -> ChosenTools:
    """`choice` None is auto; `parallel` None leaves the number of calls to the model.

    Raises: InvalidRequest for a choice among tools that are not there, tools of one name, and
    parameters that are no object.
    """
    _check_names(functions)
    if not functions and choice in (None, "none", "auto"):
        return ChosenTools()
    if not functions:
        raise InvalidRequest(f"'{param}' is only allowed when 'tools' are specified.", param=param)
    tools = {function.name: _tool(function) for function in functions}
    if choice == "none":
        return ChosenTools()
    mode, names = _mode_and_names(choice, tuple(tools))
    for name in names:
        if name not in tools:
            raise InvalidRequest(f"'{param}' names a tool that is not in 'tools'.", param=param)
    request = ToolRequest(
        tools=tuple(tools[name] for name in names),
        mode=mode,
        max_calls=1 if mode == "named" or parallel is False else None,
    )
    return ChosenTools(tuple(map(_shown, functions)), request, is_named=mode == "named")


def parse_choice(value: str | Mapping[str, Any], *, param: str = "tool_choice") -> ToolChoice:
    """A `tool_choice` of chat, where names are nested in `function` and `allowed_tools`, or of
    Responses, where they are not.

    Raises: InvalidRequest naming what is wrong.
    """
    match value:
        case "none" | "auto" | "required":
            return value
        case str():
            raise _unknown_choice(param)
    match value.get("type"):
        case "function":
            return NamedTool(_name(value, param=param))
        case "allowed_tools":
            return _allowed(value, param=param)
        case str():
            raise InvalidRequest(
                f"Invalid value for '{param}.type': only function and allowed_tools are supported.",
                code="unsupported_value",
                param=f"{param}.type",
            )
        case None:
            raise _missing(f"{param}.type")
    raise _unknown_choice(f"{param}.type")


def _allowed(value: Mapping[str, Any], *, param: str) -> AllowedTools:
    inner = value.get("allowed_tools")
    if isinstance(inner, Mapping):
        value, param = inner, f"{param}.allowed_tools"
    mode, tools = value.get("mode"), value.get("tools")
    if mode not in ("auto", "required"):
        raise InvalidRequest(
            f"Invalid value for '{param}.mode': it is 'auto' or 'required'.", param=f"{param}.mode"
        )
    if not isinstance(tools, list):
        raise _missing(f"{param}.tools")
    if not tools:
        raise InvalidRequest(
            f"'{param}.tools' must name a tool.", code="empty_array", param=f"{param}.tools"
        )
    names = [_allowed_name(tool, param=f"{param}.tools[{i}]") for i, tool in enumerate(tools)]
    return AllowedTools(mode, tuple(dict.fromkeys(names)))


def _allowed_name(tool: object, *, param: str) -> str:
    if not isinstance(tool, Mapping):
        raise InvalidRequest(f"'{param}' must be an object.", code="invalid_type", param=param)
    if tool.get("type") != "function":
        raise InvalidRequest(
            f"Invalid value for '{param}.type': only functions are supported.",
            code="unsupported_value",
            param=f"{param}.type",
        )
    return _name(tool, param=param)


def _name(value: Mapping[str, Any], *, param: str) -> str:
    inner = value.get("function")
    if isinstance(inner, Mapping):
        value, param = inner, f"{param}.function"
    name = value.get("name")
    if not isinstance(name, str):
        raise _missing(f"{param}.name")
    return name


def _missing(param: str) -> InvalidRequest:
    return InvalidRequest(
        f"Missing required parameter: '{param}'.", code="missing_required_parameter", param=param
    )


def _unknown_choice(param: str) -> InvalidRequest:
    return InvalidRequest(
        f"Invalid value for '{param}': it is 'none', 'auto', 'required', or an object that names"
        " a function or allowed_tools.",
        param=param,
    )


def _check_names(functions: Sequence[FunctionTool]) -> None:
    seen: set[str] = set()
    for function in functions:
        if function.name in seen:
            raise InvalidRequest(
                f"Invalid value for '{function.param}.name': another tool has that name.",
                param=f"{function.param}.name",
            )
        seen.add(function.name)


def _mode_and_names(
    choice: ToolChoice | None, all_names: tuple[str, ...]
) -> tuple[ToolMode, tuple[str, ...]]:
    match choice:
        case NamedTool(name):
            return "named", (name,)
        case AllowedTools(mode, names):
            return mode, names
        case "required":
            return "required", all_names
    return "auto", all_names


def _tool(function: FunctionTool) -> Tool:
    param = f"{function.param}.parameters"
    return Tool(
        name=function.name,
        parameters=msgspec.json.encode(_object_schema(function.parameters, param=param)).decode(),
        is_strict=bool(function.strict),
        param=param,
    )


def _object_schema(parameters: dict[str, Any] | None, *, param: str) -> dict[str, Any]:
    """The schema of the arguments, which are an object in any case.

    Raises: InvalidConstraint for a schema of anything else.
    """
    if parameters is None:
        return _CLOSED
    kind = parameters.get("type")
    if kind == "object":
        return parameters
    if kind is None or (isinstance(kind, list) and "object" in kind):
        return {"type": "object"} | parameters | {"type": "object"}
    raise InvalidConstraint(
        f"Invalid schema in '{param}': the arguments of a function are an object, so that its"
        ' "type" must be "object".',
        code="invalid_function_parameters",
        param=param,
    )


def _shown(function: FunctionTool) -> dict[str, Any]:
    """Keys in the order of the API's own examples, which models were trained on; those that say
    nothing to a model are left out."""
    shown: dict[str, Any] = {"name": function.name}
    if function.description is not None:
        shown["description"] = function.description
    parameters = _NO_PARAMETERS if function.parameters is None else function.parameters
    return {"type": "function", "function": {**shown, "parameters": parameters}}
