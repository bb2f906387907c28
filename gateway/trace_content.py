"""What a traced request said and was told, as JSON in the shape of the GenAI conventions.

Made only where the setting `trace_content` asks for it and the trace is recorded. Each attribute is
bounded; what is left out of it says so in its place.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gateway.generation import (
    ChatPrompt,
    ChoiceFinished,
    GenerationEvent,
    GenerationRequest,
    Prompt,
    TextDelta,
    TextPrompt,
)
from gateway.tools.calls import CollectedCall, collect
from telemetry import names

Message = dict[str, Any]
# Of a message or a part, beside its text: names of keys, quotes, a role, a mark.
OVERHEAD_CHARS = 96
# The conventions have one word for it, OpenAI another.
_REASONS = {"tool_calls": "tool_call"}


class _Room:
    """Characters of JSON that are left for one attribute."""

    def __init__(self, num_chars: int) -> None:
        self._left = max(0, num_chars)

    @property
    def is_full(self) -> bool:
        return self._left < OVERHEAD_CHARS

    def text(self, text: str) -> str:
        """The text, or its beginning with a mark behind it."""
        self._left -= OVERHEAD_CHARS
        # A lone surrogate is no text that could be sent.
        kept = text[: max(self._left, 0)].encode(errors="replace").decode()
        while kept and (num_chars := len(msgspec.json.encode(kept).decode())) > self._left:
            kept = kept[: len(kept) * max(self._left, 0) // num_chars]
        self._left -= len(msgspec.json.encode(kept).decode())
        num_cut = len(text) - len(kept)
        return kept if num_cut == 0 else f"{kept}{cut_mark(num_cut, 'characters')}"

    def json(self, text: str) -> msgspec.Raw | str:
        """A JSON text as the value that it is; cut, or where it is no JSON, as a text."""
        try:
            compact = msgspec.json.encode(msgspec.json.decode(text)).decode()
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return self.text(text)
        if len(compact) + OVERHEAD_CHARS > self._left:
            return self.text(compact)
        self._left -= len(compact) + OVERHEAD_CHARS
        return msgspec.Raw(compact.encode())


def cut_mark(count: int, what: str) -> str:
    """What stands where something was left out."""
    return f"[cut: {count} {what}]"


def request_content(
    request: GenerationRequest, instructions: str | None, max_chars: int
) -> dict[str, str]:
    """Input, tools and, where they came apart from the conversation, instructions: the first
    message of the prompt then."""
    prompts = request.prompts
    attributes: dict[str, str] = {}
    messages = [message for prompt in prompts for message in _messages(prompt)]
    if instructions is not None:
        messages = messages[1:]
        part = {"type": "text", "content": _Room(max_chars).text(instructions)}
        attributes[names.GEN_AI_SYSTEM_INSTRUCTIONS] = _encode([part])
    attributes[names.GEN_AI_INPUT_MESSAGES] = _encode(_latest(messages, _Room(max_chars)))
    tools = [t for p in prompts if isinstance(p, ChatPrompt) for t in p.tools]
    if tools:
        attributes[names.GEN_AI_TOOL_DEFINITIONS] = _encode(_definitions(tools, _Room(max_chars)))
    return attributes


@dataclass(eq=False, slots=True)
class _Choice:
    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[CollectedCall] = field(default_factory=list)
    reason: str | None = None


class AnswerContent:
    """Collects the answer of one request while it is generated."""

    def __init__(self) -> None:
        self._choices: dict[int, _Choice] = {}

    def event(self, event: GenerationEvent) -> None:
        """Takes what the generator yields."""
        match event:
            case TextDelta():
                choice = self._choice(event.choice)
                choice.texts.append(event.text)
                choice.thoughts.append(event.reasoning)
                collect(choice.calls, event.tool_calls)
            case ChoiceFinished():
                self._choice(event.choice).reason = event.reason

    def attributes(self, unfinished: str, max_chars: int) -> dict[str, str]:
        """`unfinished` is the reason of choices that did not come to their end."""
        if not self._choices:
            return {}
        room = _Room(max_chars)
        messages = [
            _answer(self._choices[index], room, unfinished=unfinished)
            for index in sorted(self._choices)
        ]
        return {names.GEN_AI_OUTPUT_MESSAGES: _encode(messages)}

    def _choice(self, index: int) -> _Choice:
        return self._choices.setdefault(index, _Choice())


def _messages(prompt: Prompt) -> Iterable[Message]:
    if isinstance(prompt, ChatPrompt):
        return prompt.messages
    return ({"role": "user", "content": _text_of(prompt)},)


def _text_of(prompt: TextPrompt) -> str:
    if prompt.text is None:
        return cut_mark(len(prompt.token_ids or ()), "token ids")
    return prompt.text


def _latest(messages: Sequence[Message], room: _Room) -> list[Message]:
    """The last message matters most: the oldest ones are left out."""
    shown: list[Message] = []
    for message in reversed(messages):
        if room.is_full:
            break
        shown.insert(0, _message(message, room))
    if num_cut := len(messages) - len(shown):
        mark = {"type": "text", "content": cut_mark(num_cut, "messages")}
        shown.insert(0, {"role": "system", "parts": [mark]})
    return shown


def _message(message: Message, room: _Room) -> Message:
    role = str(message.get("role", ""))
    if role in ("tool", "function"):
        response = {"type": "tool_call_response", "response": room.text(_joined(message))}
        if (call_id := message.get("tool_call_id")) is not None:
            response["id"] = room.text(str(call_id))
        return {"role": "tool", "parts": [response]}
    parts: list[Message] = []
    if thoughts := message.get("reasoning_content"):
        parts.append({"type": "reasoning", "content": room.text(str(thoughts))})
    if text := _joined(message):
        parts.append({"type": "text", "content": room.text(text)})
    functions = [(c.get("id"), c.get("function") or {}) for c in message.get("tool_calls") or ()]
    parts += _calls([(i, f.get("name"), f.get("arguments")) for i, f in functions], room)
    return {"role": role, "parts": parts}


def _joined(message: Message) -> str:
    """The text of a message's content, whatever it consists of."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    texts = (part.get("text") or part.get("refusal") or "" for part in content or ())
    return "".join(map(str, texts))


def _calls(calls: Sequence[tuple[object, object, object]], room: _Room) -> Iterator[Message]:
    """Each is an id, a name and arguments."""
    for index, (call_id, name, arguments) in enumerate(calls):
        if room.is_full:
            yield {"type": "text", "content": cut_mark(len(calls) - index, "calls")}
            return
        text = arguments if isinstance(arguments, str) else _encode(arguments)
        yield {
            "type": "tool_call",
            "id": room.text(str(call_id or "")),
            "name": room.text(str(name or "")),
            "arguments": room.json(text),
        }


def _answer(choice: _Choice, room: _Room, *, unfinished: str) -> Message:
    parts: list[Message] = []
    for kind, texts in (("reasoning", choice.thoughts), ("text", choice.texts)):
        if text := "".join(texts):
            parts.append({"type": kind, "content": room.text(text)})
    parts += _calls([(c.call_id, c.name, c.arguments) for c in choice.calls], room)
    reason = choice.reason or unfinished
    return {
        "role": "assistant",
        "parts": parts,
        "finish_reason": _REASONS.get(reason, reason),
    }


def _definitions(tools: Sequence[Mapping[str, Any]], room: _Room) -> list[Message]:
    shown: list[Message] = []
    for tool in tools:
        if room.is_full:
            mark = cut_mark(len(tools) - len(shown), "tools")
            shown.append({"type": "function", "name": mark})
            break
        function = tool.get("function") or {}
        definition: Message = {"type": "function", "name": room.text(str(function.get("name")))}
        if description := function.get("description"):
            definition["description"] = room.text(str(description))
        if (parameters := function.get("parameters")) is not None:
            definition["parameters"] = room.json(_encode(parameters))
        shown.append(definition)
    return shown


def _encode(value: object) -> str:
    return msgspec.json.encode(value).decode()
