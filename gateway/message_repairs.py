"""What is changed of a conversation that a template refuses, step by step until it takes it.

Templates were written for conversations as their authors thought of them; clients replay what
their agents did. Nothing of what was said is left out. Called by ChatTemplate with shaped messages.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gateway.message_shapes import (
    Message,
    calls_as_text,
    plain_text,
    results_as_text,
    with_text,
)
from gateway.tools.dialect import Dialect

Repair = Callable[[Sequence[Message]], list[Message]]


def repairs(messages: Sequence[Message], dialect: Dialect) -> Iterator[list[Message]]:
    """Ever more changed conversations, each unlike the one before."""
    steps: tuple[Repair, ...] = (
        _wrap_arguments,
        merge_system_messages,
        _merge_same_roles,
        _calls_one_by_one,
        lambda changed: _merge_same_roles(_tools_as_text(changed, dialect)),
        _system_to_user,
    )
    before = list(messages)
    for step in steps:
        after = step(before)
        if after != before:
            yield after
        before = after


def merge_system_messages(messages: Sequence[Message]) -> list[Message]:
    """All system messages as one in front, for templates that take a single one."""
    system = [message for message in messages if message["role"] == "system"]
    others = [message for message in messages if message["role"] != "system"]
    return [*_merged_run(system), *others]


def _wrap_arguments(messages: Sequence[Message]) -> list[Message]:
    """Arguments that are no object, for templates that go through them."""
    changed = []
    for message in messages:
        if message.get("tool_calls"):
            calls = [_with_object(call) for call in message["tool_calls"]]
            message = {**message, "tool_calls": calls}
        changed.append(message)
    return changed


def _with_object(call: Message) -> Message:
    function = call["function"]
    arguments: Any = function["arguments"]
    if isinstance(arguments, dict):
        return call
    return {**call, "function": {**function, "arguments": {"arguments": arguments}}}


def _merge_same_roles(messages: Sequence[Message]) -> list[Message]:
    """For templates in which users and assistants take turns."""
    changed: list[Message] = []
    for message in messages:
        if changed and message["role"] == changed[-1]["role"] != "tool":
            changed[-1:] = _merged_run([changed[-1], message])
        else:
            changed.append(message)
    return changed


def _merged_run(messages: Sequence[Message]) -> list[Message]:
    """The messages, all of one role, as one; none for none."""
    if not messages:
        return []
    merged = dict(messages[0])
    for message in messages[1:]:
        content = message["content"]
        calls = [*merged.get("tool_calls", ()), *message.get("tool_calls", ())]
        merged = {**merged, **message, "content": _joined(merged["content"], content)}
        if calls:
            merged["tool_calls"] = calls
    return [merged]


def _joined(first: str | list[Message], second: str | list[Message]) -> str | list[Message]:
    if not isinstance(first, str) and not isinstance(second, str):
        return [*first, *second]
    text = plain_text(second)
    return with_text(first, text, between="\n\n") if text else first


def _calls_one_by_one(messages: Sequence[Message]) -> list[Message]:
    """For templates that show one call a message: each in a message of its own."""
    changed: list[Message] = []
    for message in messages:
        calls = message.get("tool_calls") or []
        if len(calls) < 2:
            changed.append(message)
            continue
        empty: str | list[Message] = "" if isinstance(message["content"], str) else []
        changed.append({**message, "tool_calls": calls[:1]})
        changed += ({**message, "content": empty, "tool_calls": [call]} for call in calls[1:])
    return changed


def _tools_as_text(messages: Sequence[Message], dialect: Dialect) -> list[Message]:
    return results_as_text([calls_as_text(message, dialect) for message in messages])


def _system_to_user(messages: Sequence[Message]) -> list[Message]:
    """For templates without a system role: its words before the first ones of a user."""
    if not messages or messages[0]["role"] != "system":
        return list(messages)
    system, *others = messages
    user = next((i for i, message in enumerate(others) if message["role"] == "user"), None)
    if user is None:
        return [{**system, "role": "user"}, *others]
    content = _joined(system["content"], others[user]["content"])
    others[user] = {**others[user], "content": content}
    return others
