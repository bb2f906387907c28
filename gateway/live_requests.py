"""The requests under way, the latest finished ones and the latest errors, for the page at /ui:
phases, times and counts, never a text.

Observations tell it what happens to their requests. The event loop's thread owns it.
"""

import itertools
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from gateway.generation import (
    Admitted,
    ChoiceFinished,
    Completed,
    GenerationEvent,
    GenerationRequest,
    Submitted,
    TextDelta,
    Usage,
)
from gateway.minute_window import MinuteFigures, MinuteWindow
from telemetry import names
from telemetry.duration_sketch import DurationSketch
from telemetry.phases import PhaseBuffer, PhaseLike
from telemetry.request_trace import Outcome
from telemetry.timing import StreamTimer

MAX_FINISHED = 50
MAX_ERRORS = 50
# More of one request are folded: of each name so many are kept, and one more for the rest.
MAX_PHASES = 16
MAX_PHASES_PER_NAME = 8

Stage = Literal["preparing", "queued", "prefilling", "decoding"]
_OPEN_PHASES: dict[Stage, str] = {
    "queued": names.SPAN_QUEUE,
    "prefilling": names.SPAN_PREFILL,
    "decoding": names.SPAN_DECODE,
}


@dataclass(frozen=True, slots=True)
class OpenPhase:
    """What a request is in."""

    name: str
    start_ns: int


# A struct is made in a tenth of a frozen dataclass's time.
class RequestRecord(msgspec.Struct, frozen=True):
    """A request that generates, as it is now or was at its end. `end_ns`, `status` and `outcome`
    are None until then; `number` grows from one to the next that ends. Phases are in no order, and
    moments are some without any length. `error` is a code."""

    request_id: str
    trace_id: str
    tenant: str
    route: str
    model: str
    num_choices: int
    start_ns: int
    stage: Stage
    phases: Sequence[PhaseLike]
    open_phase: OpenPhase | None
    usage: Usage | None
    num_output_tokens: int
    ttft_s: float | None
    tpot_s: float | None
    finish_reasons: Sequence[str]
    number: int | None = None
    end_ns: int | None = None
    status: int | None = None
    outcome: Outcome | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ErrorRecord:
    """A request of any route that got an error in place of an answer, or of the rest of one."""

    number: int
    at_ns: int
    request_id: str
    trace_id: str
    route: str
    status: int
    code: str


class LiveRequest:
    """One request. Its observation tells it what happens, and times its tokens with `timer`."""

    def __init__(
        self,
        log: "LiveRequests",
        *,
        request_id: str,
        trace_id: str,
        tenant: str,
        route: str,
        keeps_gaps: bool,
    ) -> None:
        self.request_id = request_id
        self.trace_id = trace_id
        self.route = route
        self.timer = StreamTimer(log.now_ns(), gaps=DurationSketch() if keeps_gaps else None)
        self._tenant = tenant
        self._stage: Stage = "preparing"
        self._log = log
        self._model = ""
        self._request: GenerationRequest | None = None
        self._since_ns = self.timer.start_ns
        self._num_tokens = 0
        self._usage: Usage | None = None
        self._finish_reasons: dict[int, str] = {}

    @property
    def usage(self) -> Usage | None:
        """Complete, or what a request took that ended early; None until then."""
        if self._usage is None and self._request is not None and self._request.usage_log:
            return self._request.usage_log[-1]
        return self._usage

    @property
    def finish_reasons(self) -> list[str]:
        """Of the choices that ended, in their order."""
        return [self._finish_reasons[index] for index in sorted(self._finish_reasons)]

    def describe(self, model: str, request: GenerationRequest) -> None:
        """What was asked for, once the body is valid: from now on it is among those under way."""
        self._model = model
        self._request = request
        self._log.begun(self)

    def event(self, event: GenerationEvent) -> None:
        """What the generator yields; the timer has it already."""
        if isinstance(event, TextDelta):
            if event.num_tokens:
                self._tokens(event.num_tokens)
        elif isinstance(event, ChoiceFinished):
            self._finish_reasons[event.choice] = event.reason
        elif isinstance(event, Completed):
            self._usage = event.usage
        elif isinstance(event, Submitted):
            self._enter("queued")
        elif isinstance(event, Admitted):
            self._enter("prefilling")

    def close(self, *, status: int, outcome: Outcome, error: str | None) -> None:
        """The end; once."""
        if self._request is not None:
            self._log.finished(self, status=status, outcome=outcome, error=error)
        if outcome in ("error", "rejected"):
            self._log.failed(self, status=status, code=error or outcome)

    def record(self) -> RequestRecord:
        """As it is now; of a request that was described."""
        assert self._request is not None
        open_name = _OPEN_PHASES.get(self._stage)
        return RequestRecord(
            request_id=self.request_id,
            trace_id=self.trace_id,
            tenant=self._tenant,
            route=self.route,
            model=self._model,
            num_choices=self._request.num_choices * len(self._request.prompts),
            start_ns=self.timer.start_ns,
            stage=self._stage,
            phases=_kept(self._request.phase_log),
            open_phase=None if open_name is None else OpenPhase(open_name, self._since_ns),
            usage=self.usage,
            num_output_tokens=self._num_tokens,
            ttft_s=self.timer.ttft_s,
            tpot_s=self.timer.tpot_s,
            finish_reasons=self.finish_reasons,
        )

    def _tokens(self, num_tokens: int) -> None:
        now_ns = self._log.now_ns()
        if self._stage != "decoding":
            self._enter("decoding")
            if self.timer.ttft_s is not None:
                self._log.window.add_ttft(self.timer.ttft_s, now_ns)
        self._num_tokens += num_tokens
        self._log.window.count_tokens(num_tokens, now_ns)

    def _enter(self, stage: Stage) -> None:
        self._stage = stage
        self._since_ns = self._log.now_ns()


def _kept(phases: Sequence[PhaseLike]) -> Sequence[PhaseLike]:
    """All of them, but for requests that have very many."""
    if len(phases) <= MAX_PHASES:
        return tuple(phases)
    folded = PhaseBuffer(max_spans_per_phase=MAX_PHASES_PER_NAME)
    folded.add(phases)
    return [*folded.spans(), *folded.moments()]


class LiveRequests:
    """All requests of one server. What is kept of those that ended is bounded."""

    def __init__(self, *, clock: Callable[[], int] = time.time_ns) -> None:
        self.now_ns = clock
        self.start_ns = clock()
        self.window = MinuteWindow(self.start_ns)
        self.latest = 0
        self._under_way: dict[LiveRequest, None] = {}
        self._finished: deque[RequestRecord] = deque(maxlen=MAX_FINISHED)
        self._errors: deque[ErrorRecord] = deque(maxlen=MAX_ERRORS)

    def open(
        self,
        *,
        request_id: str,
        trace_id: str,
        tenant: str,
        route: str,
        keeps_gaps: bool = False,
    ) -> LiveRequest:
        """A request that just came. Its observation closes it. `keeps_gaps`: its timer keeps the
        gaps between tokens, which nobody but its trace asks for."""
        return LiveRequest(
            self,
            request_id=request_id,
            trace_id=trace_id,
            tenant=tenant,
            route=route,
            keeps_gaps=keeps_gaps,
        )

    @property
    def num_under_way(self) -> int:
        return len(self._under_way)

    def under_way(self, max_requests: int) -> list[RequestRecord]:
        """The oldest first."""
        oldest = itertools.islice(self._under_way, max_requests)
        return [request.record() for request in oldest]

    def finished_since(self, number: int) -> list[RequestRecord]:
        """Those with a higher number, in their order."""
        return [one for one in self._finished if (one.number or 0) > number]

    def errors_since(self, number: int) -> list[ErrorRecord]:
        """Those with a higher number, in their order."""
        return [one for one in self._errors if one.number > number]

    def figures(self) -> MinuteFigures:
        return self.window.figures(self.now_ns())

    def begun(self, request: LiveRequest) -> None:
        self._under_way[request] = None

    def finished(
        self, request: LiveRequest, *, status: int, outcome: Outcome, error: str | None
    ) -> None:
        now_ns = self.now_ns()
        self._under_way.pop(request, None)
        usage = request.usage
        if usage is not None:
            self.window.add_prompt(usage.prompt_tokens, usage.cached_tokens, now_ns)
        if request.timer.tpot_s is not None:
            self.window.add_tpot(request.timer.tpot_s, now_ns)
        self._finished.append(
            msgspec.structs.replace(
                request.record(),
                number=self._next(),
                open_phase=None,
                end_ns=now_ns,
                status=status,
                outcome=outcome,
                error=error,
            )
        )

    def failed(self, request: LiveRequest, *, status: int, code: str) -> None:
        self._errors.append(
            ErrorRecord(
                number=self._next(),
                at_ns=self.now_ns(),
                request_id=request.request_id,
                trace_id=request.trace_id,
                route=request.route,
                status=status,
                code=code,
            )
        )

    def _next(self) -> int:
        self.latest += 1
        return self.latest
