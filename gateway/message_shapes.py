"""Brings chat messages from the wire's many shapes into the one a template takes.

Called by ChatTemplate, which finds out by trying what its template takes. Changes no message in
place.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gateway.errors import InvalidRequest

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TemplateTraits:
    """What a template takes: content as text, as a list of parts, or both; the developer role;
    the arguments of tool calls as the JSON text or as an object (None: it shows no tool calls).
    """

    takes_text: bool = True
    takes_parts: bool = False
    takes_developer: bool = False
    tool_arguments: Literal["text", "object"] | None = None


def shape_messages(messages: Sequence[Message], traits: TemplateTraits) -> list[Message]:
    """Messages as the template wants them.

    Raises: InvalidRequest naming a content part that is not text.
    """
    return [_shape(message, traits, index=index) for index, message in enumerate(messages)]


def merge_system_messages(messages: Sequence[Message]) -> list[Message]:
    """All system messages as one in front, for templates that take a single one."""
    system = [message for message in messages if message["role"] == "system"]
    others = [message for message in messages if message["role"] != "system"]
    if not system:
        return list(others)
    if all(isinstance(message["content"], str) for message in system):
        return [{**system[0], "content": "\n\n".join(m["content"] for m in system)}, *others]
    parts = [part for message in system for part in _as_parts(message["content"])]
    return [{**system[0], "content": parts}, *others]


def _shape(message: Message, traits: TemplateTraits, *, index: int) -> Message:
    shaped = {key: value for key, value in message.items() if value is not None}
    shaped["role"] = _role(message["role"], traits)
    calls = shaped.pop("tool_calls", None) or _deprecated_call(shaped.pop("function_call", None))
    content = _content(message, traits, index=index)
    if calls and traits.tool_arguments is None:
        content = _with_calls_as_text(content, calls)
    elif calls:
        shaped["tool_calls"] = [_shape_call(call, traits) for call in calls]
    shaped["content"] = content
    return shaped


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


def _as_parts(content: str | list[Message]) -> list[Message]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return content


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
    to_wanted = _arguments_text if traits.tool_arguments == "text" else _arguments_object
    arguments = to_wanted(function.get("arguments", ""))
    return {**call, "function": {**function, "arguments": arguments}}


def _arguments_text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _arguments_object(arguments: Any) -> Any:
    """Text that is no JSON object (an answer cut short, one nested too deeply) stays text."""
    if not isinstance(arguments, str):
        return arguments
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return value if isinstance(value, dict) else arguments


def _with_calls_as_text(content: str | list[Message], calls: Sequence[Message]) -> Any:
    """A template that shows no tool calls would drop them: they become part of the content."""
    shown = [
        {
            "name": call.get("function", {}).get("name"),
            "arguments": _arguments_object(call.get("function", {}).get("arguments", "")),
        }
        for call in calls
    ]
    text = json.dumps({"tool_calls": shown}, ensure_ascii=False)
    if isinstance(content, str):
        return f"{content}\n{text}" if content else text
    return [*content, {"type": "text", "text": text}]
