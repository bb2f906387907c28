"""Streamed chat answers as bytes with their times of arrival, and what they say once read.

A load only records; reading comes after it where it can, so that the client takes little of the
processor that it may share with the server.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from telemetry.load import RequestTiming, time_stream

_DONE = b"[DONE]"
_SAID = ("content", "reasoning_content", "reasoning", "tool_calls")
_MAX_ERROR_CHARS = 200
# More tokens than any answer has; larger numbers cannot be divided.
_MAX_COUNT = 1 << 53


@dataclass(eq=False, slots=True)
class RecordedStream:
    """One answer while it comes in: `pieces` are (arrival in ns, bytes). `failure` is set where
    the connection failed."""

    start_ns: int
    status: int = 0
    pieces: list[tuple[int, bytes]] = field(default_factory=list)
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """A stream that came to its end without an error. `cached_tokens` None = the server does not
    say. The ids are there where the body asked for them (return_token_ids) and the server has
    them."""

    text: str
    timing: RequestTiming | None
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int | None
    prompt_ids: tuple[int, ...] | None = None
    output_ids: tuple[int, ...] = ()


class StreamError(Exception):
    """The stream is not a whole answer; the message is one line that says why."""


def read_answer(stream: RecordedStream) -> Answer:
    """Raises: StreamError for anything but a 200 with text events, a usage block and the end."""
    if stream.failure is not None:
        raise StreamError(stream.failure)
    if stream.status != 200:
        body = b"".join(data for _, data in stream.pieces).decode(errors="replace")
        raise StreamError(f"status {stream.status}: {' '.join(body.split())[:_MAX_ERROR_CHARS]}")
    reading = _Reading()
    for at_ns, data in _events(stream.pieces):
        reading.add(at_ns, data)
    return reading.answer(stream.start_ns)


def text_arrivals_ns(stream: RecordedStream) -> list[int]:
    """When each delta with text came; also of a stream that has not ended."""
    events = ((at_ns, data) for at_ns, data in _events(stream.pieces) if data != _DONE)
    return [at_ns for at_ns, data in events if any(map(_has_tokens, _deltas(_load(data))))]


@dataclass(eq=False, slots=True)
class _Reading:
    """What the events so far said, of all choices together."""

    text: list[str] = field(default_factory=list)
    arrivals_ns: list[int] = field(default_factory=list)
    prompt_ids: tuple[int, ...] | None = None
    output_ids: list[int] = field(default_factory=list)
    usage: dict[str, Any] | None = None
    is_done: bool = False

    def add(self, at_ns: int, data: bytes) -> None:
        """Raises: StreamError for an event that reports an error or is none."""
        if data == _DONE:
            self.is_done = True
            return
        event = _load(data)
        if "error" in event:
            raise StreamError(f"error event: {str(event['error'])[:_MAX_ERROR_CHARS]}")
        usage, deltas = event.get("usage"), _deltas(event)
        self.usage = usage if isinstance(usage, dict) else self.usage
        if any(map(_has_tokens, deltas)):
            self.arrivals_ns.append(at_ns)
            self.text += [said for delta in deltas if isinstance(said := delta.get("content"), str)]
        if prompt_ids := _ids(event.get("prompt_token_ids")):
            self.prompt_ids = tuple(prompt_ids)
        for choice in _choices(event):
            self.output_ids += _ids(choice.get("token_ids"))

    def answer(self, start_ns: int) -> Answer:
        """Raises: StreamError where the end is missing."""
        if not self.is_done:
            raise StreamError("the stream ended before its end mark")
        if self.usage is None:
            raise StreamError("the stream has no usage block")
        output_tokens = _count(self.usage.get("completion_tokens"))
        timing = time_stream(
            start_ns=start_ns, arrivals_ns=self.arrivals_ns, output_tokens=output_tokens
        )
        return Answer(
            text="".join(self.text),
            timing=timing,
            prompt_tokens=_count(self.usage.get("prompt_tokens")),
            output_tokens=output_tokens,
            cached_tokens=_cached_tokens(self.usage),
            prompt_ids=self.prompt_ids,
            output_ids=tuple(self.output_ids),
        )


def _events(pieces: list[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """The data of each event, with the arrival of the piece that ended its line."""
    rest = b""
    for at_ns, data in pieces:
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield at_ns, line.removeprefix(b"data:").strip()


def _load(data: bytes) -> dict[str, Any]:
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict):
        raise StreamError(f"an event that is no JSON object: {data[:_MAX_ERROR_CHARS]!r}")
    return event


def _choices(event: dict[str, Any]) -> list[dict[str, Any]]:
    """What has another form than it should is as good as absent, here and below."""
    choices = event.get("choices")
    return [one for one in choices if isinstance(one, dict)] if isinstance(choices, list) else []


def _deltas(event: dict[str, Any]) -> list[dict[str, Any]]:
    deltas = (choice.get("delta") for choice in _choices(event))
    return [delta for delta in deltas if isinstance(delta, dict)]


def _ids(value: object) -> list[int]:
    is_ids = isinstance(value, list) and all(type(one) is int for one in value)
    return value if is_ids else []  # type: ignore[return-value]


def _has_tokens(delta: dict[str, Any]) -> bool:
    """Whether something that the model said is in it: text, reasoning or a part of a call; not so
    for role, finish and usage events."""
    return any(delta.get(name) for name in _SAID)


def _cached_tokens(usage: dict[str, Any]) -> int | None:
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return _count(cached) if isinstance(cached, int) else None


def _count(value: object) -> int:
    return value if type(value) is int and 0 <= value <= _MAX_COUNT else 0
