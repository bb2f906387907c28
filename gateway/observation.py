"""What is measured about one API request: its trace, its tokens' times, how it ended.

The middleware opens and closes it; the route tells it what happens in between.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.disconnect import ClientDisconnected
from gateway.errors import ConstraintViolated, GatewayError
from gateway.generation import (
    GenerationEvent,
    GenerationRequest,
    PreparedGeneration,
    Submitted,
    TextDelta,
    Usage,
)
from gateway.http_path import route_path
from gateway.live_requests import LiveRequest, LiveRequests
from gateway.request_context import request_context
from gateway.request_log import FinishedRequest, log_finished
from gateway.request_metrics import RequestMetrics
from gateway.trace_content import AnswerContent
from telemetry import names
from telemetry.metrics import Metrics
from telemetry.request_trace import Outcome, RequestTrace
from telemetry.span_source import SpanValue
from telemetry.tracing import PhaseLike, Tracing

# nginx's status for a client that closed its connection; it is recorded, never sent.
STATUS_CLIENT_GONE = 499
CACHE_ROUTE = "/v1/cache"
MODELS_ROUTE = "/v1/models"
MODEL_ROUTE = "/v1/models/{id}"
RESPONSES_ROUTE = "/v1/responses"
RESPONSE_ROUTE = "/v1/responses/{id}"
# What comes after an id, or in its place.
_RESPONSE_VERBS = frozenset(
    {("GET", "input_items"), ("POST", "cancel"), ("POST", "input_tokens"), ("POST", "compact")}
)
# All that take a body.
POST_ROUTES = frozenset(
    {
        "/apply-template",
        "/detokenize",
        "/tokenize",
        "/v1/cache/explain",
        "/v1/chat/completions",
        "/v1/chat/completions/render",
        "/v1/completions",
        "/v1/detokenize",
        "/v1/embeddings",
        RESPONSES_ROUTE,
        "/v1/tokenize",
    }
)
_MAX_PATH_LEN = 256
_NS = 1e9


class Observation:
    """One request under observation; the event loop's thread owns it."""

    def __init__(
        self,
        trace: RequestTrace,
        metrics: Metrics,
        *,
        route: str,
        live: LiveRequest,
        on_finished: Callable[[FinishedRequest], None] | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.trace = trace
        self._route = route
        self._model_id: str | None = None
        self._on_finished = on_finished
        self._metrics = metrics
        self._clock = clock
        self._live = live
        self._numbers = RequestMetrics(metrics, trace, route=route, timer=live.timer)
        self._error: str | None = None
        self._phase_log: Sequence[PhaseLike] = ()
        self._retry_log: Sequence[int] = ()
        self._answer: AnswerContent | None = None
        self._is_closed = False

    def rename(self, request_id: str) -> None:
        """The name that the request's body gives itself."""
        self._live.request_id = request_id

    def describe(
        self,
        *,
        operation: str,
        model: str,
        attributes: Mapping[str, SpanValue | None],
        request: GenerationRequest,
        model_id: str,
    ) -> None:
        """What was asked for, once the body is valid; `model_id` is the model that answers. The
        generator fills the request's logs, and what they hold at the end is on the trace."""
        self.trace.describe(operation=operation, model=model, attributes=attributes)
        self._live.describe(model, request)
        self._model_id = model_id
        self._phase_log = request.phase_log
        self._retry_log = request.retry_log
        self._numbers.describe(operation, request, model_id=model_id)

    def only_prepares(self, request: GenerationRequest) -> None:
        """The request is not run: what there is of a trace comes from preparing it."""
        self._phase_log = request.phase_log

    def record_content(self, make: Callable[[int], Mapping[str, str]]) -> None:
        """What the request says, made as RequestTrace has it; its answer is recorded, too."""
        if self.trace.is_recording:
            self._answer = AnswerContent()
            self.trace.record_content(make)

    def prepared(self, prepared: PreparedGeneration) -> None:
        """What is done about the request's constraint, if it has one; tools are one."""
        constraint, kind = prepared.constraint, prepared.constraint_kind
        if constraint is None or kind is None:
            return
        self.trace.annotate(
            {
                names.ATTR_CONSTRAINT: prepared.enforcement,
                names.ATTR_CONSTRAINT_KIND: kind,
                names.ATTR_CONSTRAINT_GAPS: len(constraint.gaps),
                names.ATTR_GRAMMAR_ENGINE: constraint.engine,
            }
        )
        self._numbers.constrained(
            enforcement=prepared.enforcement,
            engine=constraint.engine,
            kind=kind,
            compile_s=prepared.compile_s,
        )

    def event(self, event: GenerationEvent) -> None:
        """Times and totals of what the generator yields."""
        match event:
            case Submitted():
                self.trace.submitted(event.engine_id, event.incarnation)
            case TextDelta():
                now_ns = self._clock()
                if self._numbers.tokens(event.choice, event.num_tokens, now_ns):
                    self.trace.first_token(now_ns)
        self._live.event(event)
        if self._answer is not None:
            self._answer.event(event)

    def fail(self, error: GatewayError) -> None:
        """The request failed after its status was sent."""
        self._error = error.code or error.type
        self._count_violation(error)

    def ignored(self, names: Sequence[str]) -> None:
        """Parameters of the request that have no effect, by names of the table."""
        for name in names:
            self._metrics.parameter_ignored(name)

    def refuse(self, error: GatewayError) -> None:
        """The request ends with this status and no answer."""
        self._count_violation(error)
        code = error.code or error.type
        if error.is_refusal:
            self._metrics.rejected(error.reason)
        self.close(
            status=error.status, outcome="rejected" if error.is_refusal else "error", error=code
        )

    def close(self, *, status: int, outcome: Outcome, error: str | None = None) -> None:
        """Ends the trace and counts the request; later calls change nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        if outcome == "ok" and self._error is not None:
            outcome, error = "error", self._error
        self._live.close(status=status, outcome=outcome, error=error)
        self._finish_trace(status, outcome, error)
        self._numbers.finish(
            status=status,
            outcome=outcome,
            usage=self._live.usage,
            phases=self._phase_log,
            now_ns=self._clock(),
        )
        if self._on_finished is not None:
            self._on_finished(self._finished(status, outcome, error))

    def _finished(self, status: int, outcome: Outcome, error: str | None) -> FinishedRequest:
        timer = self._live.timer
        return FinishedRequest(
            route=self._route,
            status=status,
            outcome=outcome,
            error=None if outcome == "ok" else error or outcome,
            model_id=self._model_id,
            usage=self._live.usage,
            finish_reasons=self._live.finish_reasons,
            ttft_s=timer.ttft_s,
            duration_s=max(0, self._clock() - timer.start_ns) / _NS,
        )

    def _count_violation(self, error: GatewayError) -> None:
        if isinstance(error, ConstraintViolated):
            self._metrics.constraint_violated()

    def _finish_trace(self, status: int, outcome: Outcome, error: str | None) -> None:
        usage = self._live.usage
        self.trace.add_phases(self._phase_log)
        if self._answer is not None:
            unfinished = "aborted" if outcome == "aborted" else "error"
            self.trace.record_content(partial(self._answer.attributes, unfinished))
        if (gaps := self._live.timer.gaps) is not None:
            self.trace.annotate(
                {
                    names.ATTR_ITL_P50_MS: gaps.quantile_ms(0.5),
                    names.ATTR_ITL_P99_MS: gaps.quantile_ms(0.99),
                }
            )
        if usage is not None:
            self.trace.annotate(
                {
                    names.GEN_AI_USAGE_REASONING: usage.reasoning_tokens,
                    names.ATTR_FORCED_TOKENS: usage.forced_tokens,
                    **_by_tier(usage),
                }
            )
        if self._retry_log:
            num_tokens = sum(self._retry_log)
            self.trace.annotate(
                {
                    names.ATTR_CONSTRAINT_RETRIES: len(self._retry_log),
                    names.ATTR_RETRIED_TOKENS: num_tokens,
                }
            )
        self.trace.finish(
            status=status,
            outcome=outcome,
            finish_reasons=self._live.finish_reasons,
            prompt_tokens=usage.prompt_tokens if usage else None,
            cached_tokens=usage.cached_tokens if usage else None,
            written_tokens=usage.written_tokens if usage else None,
            completion_tokens=usage.completion_tokens if usage else None,
            error=error,
        )


class ObservationMiddleware:
    """Opens an observation for API routes and closes it exactly once, however the request ends."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        tracing: Tracing,
        metrics: Metrics,
        live: LiveRequests,
        logs_requests: bool = False,
    ) -> None:
        self._app = app
        self._tracing = tracing
        self._metrics = metrics
        self._live = live
        self._logs_requests = logs_requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = _traced_route(scope)
        if route is None:
            await self._app(scope, receive, send)
            return
        observation = self._open(scope, route)
        status = STATUS_CLIENT_GONE

        async def watched_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watched_send)
        except (ClientDisconnected, asyncio.CancelledError):
            observation.close(status=status, outcome="aborted")
            raise
        except GatewayError as error:
            observation.refuse(error)
            raise
        except Exception:
            is_sent = status != STATUS_CLIENT_GONE
            observation.close(
                status=status if is_sent else 500, outcome="error", error="internal_error"
            )
            raise
        observation.close(status=status, outcome="ok" if status < 400 else "rejected")

    def _open(self, scope: Scope, route: str) -> Observation:
        context = request_context(scope)
        trace = self._tracing.start_request(
            method=scope["method"],
            route=route,
            headers=Headers(scope=scope),
            tenant_hash=context.tenant or None,
            attributes=_address(scope),
        )
        context.response_headers["traceparent"] = trace.traceparent
        live = self._live.open(
            request_id=context.request_id,
            trace_id=trace.trace_id,
            tenant=context.tenant,
            route=route,
            keeps_gaps=trace.is_recording,
        )
        context.observation = Observation(
            trace,
            self._metrics,
            route=route,
            live=live,
            on_finished=partial(log_finished, context) if self._logs_requests else None,
        )
        return context.observation


def _by_tier(usage: Usage) -> dict[str, int]:
    return {f"{names.ATTR_TIER_TOKENS}.{tier}": n for tier, n in usage.tier_tokens.items()}


def _address(scope: Scope) -> dict[str, SpanValue]:
    """Where the request came to: the listening socket, as what a Host header says is the client's
    choice."""
    attributes: dict[str, SpanValue] = {
        names.URL_SCHEME: scope.get("scheme", "http"),
        names.URL_PATH: scope["path"][:_MAX_PATH_LEN],
    }
    if scope.get("server") is not None:
        host, port = scope["server"]
        attributes[names.SERVER_ADDRESS] = host
        if port is not None:
            attributes[names.SERVER_PORT] = port
    return attributes


def _traced_route(scope: Scope) -> str | None:
    """The template of an API route; None for probes, metrics and everything unknown, so that
    neither traces nor labels grow with what clients make up."""
    if scope["type"] != "http":
        return None
    path, method = route_path(scope), scope["method"]
    if method == "POST" and path in POST_ROUTES:
        return path
    if path.startswith(RESPONSES_ROUTE + "/"):
        return _response_route(method, path.removeprefix(RESPONSES_ROUTE + "/"))
    if path == CACHE_ROUTE and method in ("GET", "DELETE"):
        return path
    if method != "GET":
        return None
    if path == MODELS_ROUTE:
        return path
    return MODEL_ROUTE if path.startswith(MODELS_ROUTE + "/") else None


def _response_route(method: str, rest: str) -> str | None:
    first, slash, verb = rest.partition("/")
    if slash:
        return f"{RESPONSE_ROUTE}/{verb}" if (method, verb) in _RESPONSE_VERBS else None
    if (method, first) in _RESPONSE_VERBS:
        return f"{RESPONSES_ROUTE}/{first}"
    return RESPONSE_ROUTE if method in ("GET", "DELETE") else None
