"""Answers of /v1/responses: the whole object, or the events of a stream that add up to it."""

import time
from collections.abc import Callable, Iterable

import msgspec

from gateway.errors import GatewayError
from gateway.generation import ChoiceFinished, FinishReason, TextDelta, Usage
from gateway.schemas.answer import ChoiceResult
from gateway.schemas.chat_response import chat_logprobs
from gateway.schemas.response_items import ItemStatus, OutputText, ReasoningText
from gateway.schemas.response_output import AnswerOutput, Piece, Run, RunKind
from gateway.schemas.responses_response import (
    IncompleteDetails,
    ResponseBody,
    ResponseFault,
    ResponseUsage,
    Status,
)
from gateway.sse import PING

_encode = msgspec.json.encode
_DELTAS: dict[RunKind, str] = {
    "reasoning": "response.reasoning_text.delta",
    "message": "response.output_text.delta",
    "function_call": "response.function_call_arguments.delta",
}


class ResponsesPresenter:
    """Of one request. `final` is the complete response, once there is one.

    Items come one after the other: the next begins when the last one has ended. A sequence number
    is given to an event when it is written, and the last event keeps the place it was given, so
    that a response that fails at its end fails in the place of that end.
    """

    def __init__(
        self,
        begun: ResponseBody,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._begun = begun
        self._clock = clock
        self._output = AnswerOutput(begun.id)
        self._open: Run | None = None
        self._delta_start = b""
        self._reason: FinishReason = "stop"
        self._number = 0
        self.final: ResponseBody | None = None

    def new_choice(self) -> ChoiceResult:
        """What collects an answer that is not streamed."""
        return _CollectedOutput(self._output)

    def opening(self) -> bytes:
        return b"".join(
            self._event(kind, response=self._begun)
            for kind in ("response.created", "response.in_progress")
        )

    def delta(self, delta: TextDelta) -> bytes:
        run = self._open
        is_plain = not (delta.reasoning or delta.tool_calls or delta.logprobs)
        if is_plain and delta.text and run is not None and run.kind == "message":
            run.add(delta.text)  # nearly all deltas are like this
            return self._text(delta.text, b',"logprobs":[]}\n\n')
        return self._write(self._output.feed(delta))

    def finish(self, finished: ChoiceFinished) -> bytes:
        self._reason = finished.reason
        last = self._write(self._output.finish(finished.reason))
        is_cut = finished.reason == "length"
        return last + self._close("incomplete" if is_cut else "completed")

    def closing(self, usage: Usage) -> bytes:
        self.final = self._complete(usage)
        return self._last_event(self.final)

    def failure(self, error: GatewayError) -> bytes:
        failed = msgspec.structs.replace(
            self._begun,
            status="failed",
            output=self._output.items(is_cut=self._open is not None),
            error=ResponseFault.of(error),
        )
        return self._last_event(failed)

    def silence(self) -> bytes:
        """No event says nothing and has a number; every client of this API reads comments."""
        return PING

    def body(self, choices: list[ChoiceResult], usage: Usage) -> ResponseBody:
        (choice,) = choices
        self._reason = "length" if choice.finish_reason == "length" else "stop"
        for _ in self._output.finish(self._reason):
            pass
        self.final = self._complete(usage)
        return self.final

    def _complete(self, usage: Usage) -> ResponseBody:
        is_cut = self._reason == "length"
        status: Status = "incomplete" if is_cut else "completed"
        return msgspec.structs.replace(
            self._begun,
            status=status,
            output=self._output.items(is_cut=is_cut),
            usage=ResponseUsage.of(usage),
            completed_at=None if is_cut else int(self._clock()),
            incomplete_details=IncompleteDetails() if is_cut else None,
        )

    def _write(self, pieces: Iterable[Piece]) -> bytes:
        frames = []
        for piece in pieces:
            if piece.run is not self._open:
                frames.append(self._close("completed"))
                frames.append(self._begin(piece.run))
            if piece.text or piece.logprobs:
                frames.append(self._delta(piece))
        return b"".join(frames)

    def _begin(self, run: Run) -> bytes:
        self._open = run
        place: dict[str, object] = {"item_id": run.id, "output_index": run.index}
        events = self._event("response.output_item.added", output_index=run.index, item=run.begun())
        if run.kind != "function_call":
            place["content_index"] = 0
            part = ReasoningText("") if run.kind == "reasoning" else OutputText("")
            events += self._event("response.content_part.added", **place, part=part)
        kind = _DELTAS[run.kind]
        # A delta costs its number and one JSON string.
        start = _encode({"type": kind, **place})[:-1]
        self._delta_start = b"event: %b\ndata: %b" % (kind.encode(), start)
        return events

    def _delta(self, piece: Piece) -> bytes:
        if piece.run.kind != "message":
            return self._text(piece.text, b"}\n\n")
        logprobs = _encode(chat_logprobs(piece.logprobs).content)
        return self._text(piece.text, b',"logprobs":%b}\n\n' % logprobs)

    def _text(self, text: str, end: bytes) -> bytes:
        number, self._number = self._number, self._number + 1
        return b'%b,"sequence_number":%d,"delta":%b%b' % (
            self._delta_start,
            number,
            _encode(text),
            end,
        )

    def _close(self, status: ItemStatus) -> bytes:
        run, self._open = self._open, None
        if run is None:
            return b""
        events = self._end_call(run) if run.kind == "function_call" else self._end_part(run)
        return events + self._event(
            "response.output_item.done", output_index=run.index, item=run.item(status)
        )

    def _end_call(self, run: Run) -> bytes:
        return self._event(
            "response.function_call_arguments.done",
            item_id=run.id,
            output_index=run.index,
            name=run.name,
            arguments=run.text,
        )

    def _end_part(self, run: Run) -> bytes:
        part = run.part()
        place: dict[str, object] = {
            "item_id": run.id,
            "output_index": run.index,
            "content_index": 0,
        }
        if isinstance(part, ReasoningText):
            done = self._event("response.reasoning_text.done", **place, text=part.text)
        else:
            done = self._event(
                "response.output_text.done", **place, text=part.text, logprobs=part.logprobs
            )
        return done + self._event("response.content_part.done", **place, part=part)

    def _last_event(self, response: ResponseBody) -> bytes:
        """It takes no number: what fails after it takes its place, as it was not sent."""
        return _frame(f"response.{response.status}", self._number, response=response)

    def _event(self, kind: str, **fields: object) -> bytes:
        number, self._number = self._number, self._number + 1
        return _frame(kind, number, **fields)


class _CollectedOutput(ChoiceResult):
    """Keeps the order of text and calls, which a choice of chat does not have."""

    def __init__(self, output: AnswerOutput) -> None:
        super().__init__()
        self._output = output

    def add(self, delta: TextDelta) -> None:
        for _ in self._output.feed(delta):
            pass


def _frame(kind: str, number: int, **fields: object) -> bytes:
    payload = _encode({"type": kind, "sequence_number": number, **fields})
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), payload)
