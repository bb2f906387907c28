"""The metrics of one request: what it took, how long, and whether that was good. Observation owns
it and tells it what happens.
"""

from collections.abc import Sequence

from gateway.generation import GenerationRequest, Usage
from telemetry.goodput import Ended
from telemetry.metrics import Metrics
from telemetry.phase_figures import figures_of
from telemetry.phases import PhaseLike
from telemetry.request_trace import Outcome, RequestTrace
from telemetry.timing import StreamTimer

_NS = 1e9


class RequestMetrics:
    """Counts as in flight from the start to finish(), which must follow. Requests that ask for no
    answer are never described."""

    def __init__(
        self, metrics: Metrics, trace: RequestTrace, *, route: str, timer: StreamTimer
    ) -> None:
        self._metrics = metrics
        self._route = route
        self._timer = timer
        # A trace that nobody has is no example.
        ids = {"trace_id": trace.trace_id, "span_id": trace.span_id}
        self._exemplar = ids if trace.is_recording else None
        self._operation: str | None = None
        self._model_id = ""
        self._request: GenerationRequest | None = None
        self._is_constrained = False
        self._is_first_told = False
        metrics.request_started()

    def describe(self, operation: str, request: GenerationRequest, *, model_id: str) -> None:
        """It asks for an answer of the model of this id."""
        self._operation, self._request, self._model_id = operation, request, model_id

    def constrained(
        self, *, enforcement: str, engine: str, kind: str, compile_s: float | None
    ) -> None:
        self._is_constrained = True
        self._metrics.constrained(
            enforcement=enforcement, engine=engine, kind=kind, compile_s=compile_s
        )

    def tokens(self, choice: int, num_tokens: int, now_ns: int) -> bool:
        """Whether they are the first of the request."""
        gap = self._timer.observe(num_tokens, now_ns, choice=choice)
        if gap is not None:
            self._metrics.observe_inter_token(
                gap.seconds, num_tokens=gap.num_tokens, exemplar=self._exemplar
            )
        elif not self._is_first_told and self._timer.ttft_s is not None:
            self._is_first_told = True
            self._metrics.observe_ttft(
                self._timer.ttft_s, operation=self._operation or "", exemplar=self._exemplar
            )
            return True
        return False

    def finish(
        self,
        *,
        status: int,
        outcome: Outcome,
        usage: Usage | None,
        phases: Sequence[PhaseLike],
        now_ns: int,
    ) -> None:
        """`usage` is what it took, however it ended; None where it never left the queue."""
        life_s = max(0, now_ns - self._timer.start_ns) / _NS
        if self._request is not None:
            self._finish_answer(self._request, usage, phases)
            self._metrics.count_goodput(
                Ended(outcome, status, life_s, self._timer.ttft_s, self._timer.tpot_s)
            )
        self._metrics.request_finished(
            route=self._route,
            outcome=outcome,
            status=status,
            duration_s=life_s,
            exemplar=self._exemplar,
        )

    def _finish_answer(
        self, request: GenerationRequest, usage: Usage | None, phases: Sequence[PhaseLike]
    ) -> None:
        tpot_s = self._timer.tpot_s
        if tpot_s is not None:
            self._metrics.observe_tpot(
                tpot_s, operation=self._operation or "", exemplar=self._exemplar
            )
        if request.retry_log:
            self._metrics.count_retries(len(request.retry_log), num_tokens=sum(request.retry_log))
        self._metrics.observe_phases(figures_of(phases), is_constrained=self._is_constrained)
        if usage is not None:
            self._metrics.count_usage(usage, tenant=request.tenant, model=self._model_id)
