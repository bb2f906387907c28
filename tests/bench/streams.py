"""Streamed answers as bytes with their times of arrival, and what they say once read.

A load only records; reading comes after it, so that the client takes little of the processor
that it shares with the server.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from telemetry.load import RequestTiming, time_stream

_DONE = b"[DONE]"
_MAX_ERROR_CHARS = 200


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
    """A stream that came to its end without an error."""

    text: str
    timing: RequestTiming | None
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int


class StreamError(Exception):
    """The stream is not a whole answer; the message is one line that says why."""


def read_answer(stream: RecordedStream) -> Answer:
    """Raises: StreamError for anything but a 200 with text events, a usage block and the end."""
    if stream.failure is not None:
        raise StreamError(stream.failure)
    if stream.status != 200:
        body = b"".join(data for _, data in stream.pieces).decode(errors="replace")
        raise StreamError(f"status {stream.status}: {' '.join(body.split())[:_MAX_ERROR_CHARS]}")
    text: list[str] = []
    arrivals_ns: list[int] = []
    usage: dict[str, Any] | None = None
    is_done = False
    for at_ns, data in _events(stream.pieces):
        if data == _DONE:
            is_done = True
            continue
        event = _load(data)
        if "error" in event:
            raise StreamError(f"error event: {str(event['error'])[:_MAX_ERROR_CHARS]}")
        usage = _usage(event) or usage
        if delta := _delta_text(event):
            arrivals_ns.append(at_ns)
            text.append(delta)
    if not is_done:
        raise StreamError("the stream ended before its end mark")
    if usage is None:
        raise StreamError("the stream has no usage block")
    return _answer("".join(text), arrivals_ns, usage, start_ns=stream.start_ns)


def text_arrivals_ns(stream: RecordedStream) -> list[int]:
    """When each delta with text came; also of a stream that has not ended."""
    events = ((at_ns, data) for at_ns, data in _events(stream.pieces) if data != _DONE)
    return [at_ns for at_ns, data in events if _delta_text(_load(data))]


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
    except ValueError:
        event = None
    if not isinstance(event, dict):
        raise StreamError(f"an event that is no JSON object: {data[:_MAX_ERROR_CHARS]!r}")
    return event


def _delta_text(event: dict[str, Any]) -> str:
    """Of all choices; empty for role, finish and usage events."""
    choices = event.get("choices") or []
    return "".join(choice["delta"].get("content") or "" for choice in choices)


def _usage(event: dict[str, Any]) -> dict[str, Any] | None:
    usage = event.get("usage")
    return usage if isinstance(usage, dict) else None


def _answer(text: str, arrivals_ns: list[int], usage: dict[str, Any], *, start_ns: int) -> Answer:
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    output_tokens = _count(usage.get("completion_tokens"))
    return Answer(
        text=text,
        timing=time_stream(start_ns=start_ns, arrivals_ns=arrivals_ns, output_tokens=output_tokens),
        prompt_tokens=_count(usage.get("prompt_tokens")),
        output_tokens=output_tokens,
        cached_tokens=_count(cached),
    )


def _count(value: object) -> int:
    """Absent is 0: not every server says how much was cached."""
    return value if isinstance(value, int) else 0
