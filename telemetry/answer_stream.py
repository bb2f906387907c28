"""Streamed answers as bytes with their times of arrival, and what they say once read.

A load only records; reading comes later, in slices, so that the client takes little of the
processor that it may share with the server and no arrival waits to be noted. What an event may
look like is `telemetry.answer_events`.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

from telemetry.answer_events import AnswerEvent, EventError, read_event
from telemetry.bench_run import FailureKind
from telemetry.load import RequestTiming, time_stream

_DONE = b"[DONE]"
_MAX_ERROR_CHARS = 200
# More tokens than any answer has; larger numbers cannot be divided.
_MAX_COUNT = 1 << 53
# Events of a slice: reading them takes less than a third of a millisecond.
_SLICE_EVENTS = 64


@dataclass(eq=False, slots=True)
class RecordedStream:
    """One answer while it comes in: `pieces` are (arrival in ns, bytes), `end_ns` the arrival of
    its end. `failure` is set where the connection failed."""

    start_ns: int
    status: int = 0
    pieces: list[tuple[int, bytes]] = field(default_factory=list)
    failure: str | None = None
    failure_kind: FailureKind = FailureKind.CONNECTION
    end_ns: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """A stream that came to its end without an error. `cached_tokens` and `reasoning_tokens` None =
    the server does not say. The ids are there where the body asked for them (return_token_ids) and
    the server has them."""

    text: str
    timing: RequestTiming | None
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int | None
    prompt_ids: tuple[int, ...] | None = None
    output_ids: tuple[int, ...] = ()
    reasoning_tokens: int | None = None
    finish_reason: str | None = None
    tells_usage: bool = True


class StreamError(Exception):
    """The stream is not a whole answer; the message is one line that says why."""

    def __init__(
        self,
        text: str,
        kind: FailureKind = FailureKind.BROKEN_STREAM,
        *,
        status: int | None = None,
    ) -> None:
        super().__init__(text)
        self.kind = kind
        self.status = status


def read_answer(stream: RecordedStream, *, needs_usage: bool = True) -> Answer:
    """Raises: StreamError for anything but a 200 with events of text, a usage block where it is
    needed, and the end."""
    slices = read_slices(stream, needs_usage=needs_usage)
    while True:
        try:
            next(slices)
        except StopIteration as end:
            answer: Answer = end.value
            return answer


def read_slices(
    stream: RecordedStream, *, needs_usage: bool = True
) -> Generator[None, None, Answer]:
    """The same, in parts that take a moment each. Raises: StreamError."""
    if stream.failure is not None:
        raise StreamError(stream.failure, stream.failure_kind)
    if stream.status != 200:
        body = b"".join(data for _, data in stream.pieces).decode(errors="replace")
        said = " ".join(body.split())[:_MAX_ERROR_CHARS]
        raise StreamError(
            f"status {stream.status}: {said}", FailureKind.STATUS, status=stream.status
        )
    reading = _Reading()
    number = 0
    for number, (at_ns, data) in enumerate(_events(stream.pieces), start=1):
        reading.add(at_ns, data)
        if number % _SLICE_EVENTS == 0:
            yield
    if not number:
        start = b"".join(data for _, data in stream.pieces[:_MAX_ERROR_CHARS])[:_MAX_ERROR_CHARS]
        said = " ".join(start.decode(errors="replace").split())
        raise StreamError(f"no event stream, but: {said}" if said else "an answer without events")
    return reading.answer(stream.start_ns, needs_usage=needs_usage)


def text_arrivals_ns(stream: RecordedStream) -> list[int]:
    """When each delta with text came; also of a stream that has not ended."""
    events = ((at_ns, data) for at_ns, data in _events(stream.pieces) if data != _DONE)
    return [at_ns for at_ns, data in events if _load(data).has_tokens]


@dataclass(eq=False, slots=True)
class _Reading:
    """What the events so far said, of all choices together."""

    text: list[str] = field(default_factory=list)
    arrivals: list[tuple[int, int]] = field(default_factory=list)
    prompt_ids: tuple[int, ...] | None = None
    output_ids: list[int] = field(default_factory=list)
    usage: dict[str, Any] | None = None
    finish_reason: str | None = None
    num_unplaced: int = 0
    is_done: bool = False

    def add(self, at_ns: int, data: bytes) -> None:
        """Raises: StreamError for an event that reports an error or is none."""
        if data == _DONE:
            self.is_done = True
            return
        event = _load(data)
        if event.error is not None:
            said = f"error event: {str(event.error)[:_MAX_ERROR_CHARS]}"
            raise StreamError(said, FailureKind.ERROR_EVENT)
        self.usage = event.usage or self.usage
        self.finish_reason = event.finish_reason or self.finish_reason
        self.is_done = self.is_done or event.is_end
        if event.prompt_ids:
            self.prompt_ids = tuple(event.prompt_ids)
        if event.token_ids:
            self.output_ids += event.token_ids
            # Tokens that showed no text yet count with the text that they came to be.
            self.num_unplaced += len(event.token_ids)
        if event.has_tokens:
            self.arrivals.append((at_ns, max(1, self.num_unplaced)))
            self.num_unplaced = 0
            self.text += event.texts

    def answer(self, start_ns: int, *, needs_usage: bool) -> Answer:
        """Raises: StreamError where the end is missing."""
        if not self.is_done:
            raise StreamError("the stream ended before its end mark")
        usage = self.usage or {}
        output_tokens = _count(usage.get("completion_tokens", usage.get("output_tokens")))
        tells_usage = output_tokens is not None
        if output_tokens is None:
            if needs_usage:
                raise StreamError("the stream has no usage block with a number of output tokens")
            output_tokens = sum(count for _, count in self.arrivals)
        timing = time_stream(start_ns=start_ns, arrivals=self.arrivals, output_tokens=output_tokens)
        return Answer(
            text="".join(self.text),
            timing=timing,
            prompt_tokens=_count(usage.get("prompt_tokens", usage.get("input_tokens"))) or 0,
            output_tokens=output_tokens,
            cached_tokens=_detail(usage, ("prompt_tokens", "input_tokens"), "cached_tokens"),
            prompt_ids=self.prompt_ids,
            output_ids=tuple(self.output_ids),
            reasoning_tokens=_detail(
                usage, ("completion_tokens", "output_tokens"), "reasoning_tokens"
            ),
            finish_reason=self.finish_reason,
            tells_usage=tells_usage,
        )


def _events(pieces: list[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """The data of each event, with the arrival of the piece that ended its line."""
    rest: list[bytes] = []
    for at_ns, data in pieces:
        rest.append(data)
        if b"\n" not in data:  # a line may come in thousands of pieces: joined once, at its end
            continue
        *lines, last = b"".join(rest).split(b"\n")
        rest = [last]
        for line in lines:
            if line.startswith(b"data:"):
                yield at_ns, line.removeprefix(b"data:").strip()


def _load(data: bytes) -> AnswerEvent:
    try:
        return read_event(data)
    except EventError:
        said = f"an event that is no JSON object: {data[:_MAX_ERROR_CHARS]!r}"
        raise StreamError(said) from None


def _detail(usage: dict[str, Any], owners: tuple[str, str], name: str) -> int | None:
    """From the details of either name: those of chats or those of responses."""
    found = (usage.get(f"{owner}_details") for owner in owners)
    details = next((one for one in found if isinstance(one, dict)), {})
    return _count(details.get(name))


def _count(value: object) -> int | None:
    """None where it is no number of tokens."""
    return value if type(value) is int and 0 <= value <= _MAX_COUNT else None
