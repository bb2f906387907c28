"""Brings chat messages from the wire's many shapes into the one a template takes.

Called by ChatTemplate, which finds out by trying what its template takes. Changes no message in
place.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gateway.errors import InvalidRequest
from gateway.tools.dialect import Dialect, short_call_id
from gateway.tools.families import HERMES
from gateway.tools.prompt import arguments_text, calls_text, result_text, tools_text

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TemplateTraits:
    """What a template takes: content as text, as a list of parts, or both; the developer role;
    the arguments of tool calls as the JSON text or as an object (None: it shows no tool calls);
    the tools themselves, as its variable or as a text beside the system's (None: it shows none);
    results of tools; ids of calls that are not nine letters and digits; text beside calls.
    """

    takes_text: bool = True
    takes_parts: bool = False
    takes_developer: bool = False
    tool_arguments: Literal["text", "object"] | None = None
    tools: Literal["variable", "system"] | None = None
    takes_results: bool = False
    takes_any_id: bool = True
    takes_text_and_calls: bool = True


class WrittenObject(dict[str, Any]):
    """An object that knows its text: written as JSON it is that text again, so that the tokens of
    a conversation stay those that the model made."""

    def __init__(self, value: dict[str, Any], text: str) -> None:
        super().__init__(value)
        self.text = text


def shape_messages(
    messages: Sequence[Message], traits: TemplateTraits, dialect: Dialect = HERMES
) -> list[Message]:
    """Messages as the template wants them. What it does not show of tools becomes text in the
    dialect.

    Raises: InvalidRequest naming a content part that is not text.
    """
    shaped = [
        _shape(message, traits, dialect, index=index) for index, message in enumerate(messages)
    ]
    if not traits.takes_text_and_calls:
        shaped = [part for message in shaped for part in _text_apart(message)]
    if not traits.takes_any_id:
        shaped = _with_short_ids(shaped)
    return shaped if traits.takes_results else results_as_text(shaped)


def with_tools(
    messages: Sequence[Message],
    tools: Sequence[Message],
    traits: TemplateTraits,
    *,
    dialect: Dialect = HERMES,
) -> list[Message]:
    """Shaped messages, with the tools among them for a template that has no variable for them."""
    if not tools or traits.tools == "variable":
        return list(messages)
    has_system = bool(messages) and messages[0]["role"] == "system"
    empty: str | list[Message] = "" if traits.takes_text else []
    system, others = (
        (messages[0], messages[1:])
        if has_system
        else ({"role": "system", "content": empty}, messages)
    )
    if traits.tools == "system":
        functions = json.dumps([tool["function"] for tool in tools], ensure_ascii=False)
        return [{**system, "tools": functions}, *others]
    text = tools_text(tools, dialect)
    return [{**system, "content": with_text(system["content"], text, between="\n\n")}, *others]


def with_text(content: str | list[Message], text: str, *, between: str) -> str | list[Message]:
    """A text after a content, apart from it if there is any."""
    if isinstance(content, str):
        return f"{content}{between}{text}" if content else text
    return [*content, {"type": "text", "text": f"{between}{text}" if content else text}]


def plain_text(content: str | list[Message]) -> str:
    """The text of a shaped content."""
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def results_as_text(messages: Sequence[Message]) -> list[Message]:
    """Results of tools as a user's words, those in a row as one message."""
    shaped: list[Message] = []
    is_run = False
    for message in messages:
        if message["role"] != "tool":
            shaped.append(message)
            is_run = False
            continue
        content = message["content"]
        text = result_text(plain_text(content))
        if is_run:
            shaped[-1]["content"] = with_text(shaped[-1]["content"], text, between="\n")
        elif isinstance(content, str):
            shaped.append({"role": "user", "content": text})
        else:
            shaped.append({"role": "user", "content": [{"type": "text", "text": text}]})
        is_run = True
    return shaped


def calls_as_text(message: Message, dialect: Dialect) -> Message:
    """A message whose calls are a part of its content, as the model wrote them."""
    calls = message.get("tool_calls")
    if not calls:
        return message
    between = dialect.gap if dialect.trigger is not None else "\n"
    content = with_text(message["content"], calls_text(calls, dialect), between=between)
    rest = {key: value for key, value in message.items() if key != "tool_calls"}
    return {**rest, "content": content}


def _shape(message: Message, traits: TemplateTraits, dialect: Dialect, *, index: int) -> Message:
    shaped = {key: value for key, value in message.items() if value is not None}
    shaped["role"] = _role(message["role"], traits)
    calls = shaped.pop("tool_calls", None) or _deprecated_call(shaped.pop("function_call", None))
    shaped["content"] = _content(message, traits, index=index)
    if not calls:
        return shaped
    if traits.tool_arguments is None:
        return calls_as_text({**shaped, "tool_calls": calls}, dialect)
    return {**shaped, "tool_calls": [_shape_call(call, traits) for call in calls]}


def _text_apart(message: Message) -> list[Message]:
    """What is said beside calls as a message of its own before them."""
    if not message.get("tool_calls") or not message["content"]:
        return [message]
    text = {key: value for key, value in message.items() if key != "tool_calls"}
    empty: str | list[Message] = "" if isinstance(message["content"], str) else []
    return [text, {**message, "content": empty}]


def _role(role: str, traits: TemplateTraits) -> str:
    if role == "developer" and not traits.takes_developer:
        return "system"
    return "tool" if role == "function" else role


def _content(message: Message, traits: TemplateTraits, *, index: int) -> str | list[Message]:
    content = message.get("content")
    if content is None:
        content = message.get("refusal") or ""
    if isinstance(content, str):
        return content if traits.takes_text else _as_parts(content)
    texts = [
        _part_text(part, param=f"messages[{index}].content[{j}]") for j, part in enumerate(content)
    ]
    if traits.takes_parts:
        return [{"type": "text", "text": text} for text in texts]
    return "".join(texts)


def _as_parts(content: str) -> list[Message]:
    return [{"type": "text", "text": content}] if content else []


def _part_text(part: Message, *, param: str) -> str:
    kind = part.get("type")
    if kind in ("text", "refusal"):
        return str(part.get(kind, ""))
    raise InvalidRequest(
        f"'{param}' is of type {kind!r}; this model takes text only.",
        code="unsupported_value",
        param=f"{param}.type",
    )


def _deprecated_call(call: Message | None) -> list[Message] | None:
    return None if call is None else [{"type": "function", "function": call}]


def _shape_call(call: Message, traits: TemplateTraits) -> Message:
    function = call.get("function", {})
    to_wanted = arguments_text if traits.tool_arguments == "text" else _arguments_object
    arguments = to_wanted(function.get("arguments") or "{}")
    # In the order in which templates were made for that write out the whole of it.
    return {**call, "function": {"name": function.get("name", ""), "arguments": arguments}}


def _arguments_object(arguments: Any) -> Any:
    """Text that is no JSON object (an answer cut short, one nested too deeply) stays text."""
    if not isinstance(arguments, str):
        return arguments
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return WrittenObject(value, arguments.strip()) if isinstance(value, dict) else arguments


def _with_short_ids(messages: Sequence[Message]) -> list[Message]:
    """Every id in the form that the template demands, results still beside their calls. One that
    is missing is told by its place: results answer calls in their order."""
    waiting: list[str] = []
    shaped = []
    for index, message in enumerate(messages):
        if message.get("tool_calls"):
            calls = []
            for number, call in enumerate(message["tool_calls"]):
                call_id = short_call_id(call.get("id") or f"{index}.{number}")
                calls.append({**call, "id": call_id})
                waiting.append(call_id)
            message = {**message, "tool_calls": calls}
        elif message["role"] == "tool":
            given = message.get("tool_call_id")
            if given:
                call_id = short_call_id(given)
            else:
                call_id = waiting[0] if waiting else short_call_id(str(index))
            if call_id in waiting:
                waiting.remove(call_id)
            message = {**message, "tool_call_id": call_id}
        shaped.append(message)
    return shaped
