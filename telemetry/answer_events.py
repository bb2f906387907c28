"""One event of a streamed answer, of the chat, completions or responses API: pure.

What has another form than it should is as good as absent; only what is no JSON object, or too deep
to read, is an error.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

_SAID = ("content", "reasoning_content", "reasoning", "tool_calls")
_RESPONSE_SAID = frozenset(
    {
        "response.output_text.delta",
        "response.reasoning_text.delta",
        "response.reasoning_summary_text.delta",
        "response.function_call_arguments.delta",
        "response.refusal.delta",
    }
)
_RESPONSE_ENDS = {"response.completed": "stop", "response.incomplete": "length"}


class EventError(ValueError):
    """The data is no JSON object."""


class AnswerEvent(msgspec.Struct, frozen=True, gc=False):
    """`has_tokens`: something that the model said is in it, which is text, reasoning or a part of a
    call; not so for role, finish and usage events. `texts` are the answer's own."""

    has_tokens: bool = False
    texts: tuple[str, ...] = ()
    token_ids: tuple[int, ...] = ()
    prompt_ids: tuple[int, ...] = ()
    usage: dict[str, Any] | None = None
    finish_reason: str | None = None
    error: object = None
    is_end: bool = False


# As they are packed (telemetry.cacheable); no vocabulary has more.
_MAX_ID = (1 << 32) - 1
_Ids = tuple[Annotated[int, msgspec.Meta(ge=0, le=_MAX_ID)], ...]


class _Delta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[Any] | None = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta | None = None
    text: str | None = None
    token_ids: _Ids | None = None
    prompt_token_ids: _Ids | None = None
    finish_reason: str | None = None


class _Chunk(msgspec.Struct, gc=False):
    """An event of a chat or completion as nearly all are; `type` belongs to responses."""

    choices: tuple[_Choice, ...] = ()
    usage: dict[str, Any] | None = None
    prompt_token_ids: _Ids | None = None
    error: Any = None
    type: str | None = None


_CHUNKS = msgspec.json.Decoder(_Chunk)


def read_event(data: bytes) -> AnswerEvent:
    """Raises: EventError."""
    try:
        chunk = _CHUNKS.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return _read_slowly(data)
    if chunk.type is not None:
        return _read_slowly(data)
    return _of_choices(chunk, [_read_choice(choice) for choice in chunk.choices])


class _Said(msgspec.Struct, frozen=True, gc=False):
    """What one choice says; a struct is made faster than a dataclass."""

    has_tokens: bool
    text: str
    token_ids: tuple[int, ...]
    prompt_ids: tuple[int, ...]
    finish_reason: str | None


def _read_choice(choice: _Choice) -> _Said:
    delta, text = choice.delta, choice.text or ""
    has_tokens = bool(text)
    if delta is not None:
        text = delta.content or text
        has_tokens = bool(
            text or delta.reasoning_content or delta.reasoning or delta.tool_calls or has_tokens
        )
    return _Said(
        has_tokens,
        text,
        choice.token_ids or (),
        choice.prompt_token_ids or (),
        choice.finish_reason,
    )


def _of_choices(chunk: _Chunk, choices: list[_Said]) -> AnswerEvent:
    prompt_ids = chunk.prompt_token_ids or ()
    if len(choices) == 1:  # as in all but the last
        one = choices[0]
        return AnswerEvent(
            one.has_tokens,
            (one.text,) if one.text else (),
            one.token_ids,
            prompt_ids or one.prompt_ids,
            chunk.usage,
            one.finish_reason,
            chunk.error,
        )
    return AnswerEvent(
        any(one.has_tokens for one in choices),
        tuple(one.text for one in choices if one.text),
        tuple(token for one in choices for token in one.token_ids),
        prompt_ids or next((one.prompt_ids for one in choices if one.prompt_ids), ()),
        chunk.usage,
        next((one.finish_reason for one in choices if one.finish_reason), None),
        chunk.error,
    )


def _read_slowly(data: bytes) -> AnswerEvent:
    """Of any object. Raises: EventError."""
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict):
        raise EventError("no JSON object")
    kind = event.get("type")
    if isinstance(kind, str) and (kind == "error" or kind.startswith("response.")):
        return _of_response(kind, event)
    choices = [_given_choice(one) for one in _list(event.get("choices")) if isinstance(one, dict)]
    chunk = _Chunk(
        usage=_dict(event.get("usage")),
        prompt_token_ids=_ids(event.get("prompt_token_ids")),
        error=event.get("error"),
    )
    return _of_choices(chunk, choices)


def _given_choice(choice: Mapping[str, Any]) -> _Said:
    delta = _dict(choice.get("delta")) or {}
    text = _text(delta.get("content")) or _text(choice.get("text"))
    return _Said(
        bool(text or any(delta.get(name) for name in _SAID)),
        text,
        _ids(choice.get("token_ids")),
        _ids(choice.get("prompt_token_ids")),
        _text(choice.get("finish_reason")) or None,
    )


def _of_response(kind: str, event: Mapping[str, Any]) -> AnswerEvent:
    response = _dict(event.get("response")) or {}
    if kind == "error" or kind == "response.failed":
        return AnswerEvent(error=response.get("error") or event.get("error") or event)
    if kind in _RESPONSE_ENDS:
        return AnswerEvent(
            usage=_dict(response.get("usage")), finish_reason=_RESPONSE_ENDS[kind], is_end=True
        )
    said = _text(event.get("delta")) if kind in _RESPONSE_SAID else ""
    texts = (said,) if said and kind == "response.output_text.delta" else ()
    return AnswerEvent(has_tokens=bool(said), texts=texts)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _dict(value: object) -> dict[str, Any] | None:
    return value if isinstance(value, dict) else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _ids(value: object) -> tuple[int, ...]:
    found = _list(value)
    return tuple(found) if all(type(one) is int and 0 <= one <= _MAX_ID for one in found) else ()
