"""The spans of one request: SERVER `POST /v1/...` > INTERNAL `chat <model>` > one per phase.

Any thread may call it. After finish() every call is ignored. Content is never recorded.
"""

import functools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Concatenate, Literal, ParamSpec

from opentelemetry.trace import Span, SpanKind, StatusCode

from telemetry import names
from telemetry.phases import AttributeValue, PhaseBuffer, PhaseLike
from telemetry.span_source import SpanSource, SpanValue
from telemetry.w3c import format_traceparent

Outcome = Literal["ok", "aborted", "error", "rejected"]

PROVIDER = "radixgate"
# A client chooses the model's name: what a span keeps of it is bounded.
_MAX_NAME_LEN = 128
_MAX_TEXT_LEN = 1024
_MS = 1e6
_NS = 1e9

_logger = logging.getLogger(__name__)
_P = ParamSpec("_P")


def _never_fails(
    method: "Callable[Concatenate[RequestTrace, _P], None]",
) -> "Callable[Concatenate[RequestTrace, _P], None]":
    """A fault in telemetry costs a log line, not the request; strict traces (tests) raise it."""

    @functools.wraps(method)
    def guarded(self: "RequestTrace", /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception:
            if self.is_strict:
                raise
            _logger.exception("a trace is incomplete: %s failed", method.__name__)

    return guarded


class RequestTrace:
    """Made by Tracing.start_request(); the caller must finish() it on every path."""

    def __init__(
        self,
        spans: SpanSource,
        server_span: Span,
        *,
        start_ns: int,
        clock: Callable[[], int] = time.time_ns,
        strict: bool = False,
    ) -> None:
        self.start_ns = start_ns
        self.is_strict = strict
        context = server_span.get_span_context()
        self.trace_id = f"{context.trace_id:032x}"
        self.span_id = f"{context.span_id:016x}"
        self.traceparent = format_traceparent(context)
        self.tracestate = context.trace_state.to_header()
        self._spans = spans
        self._server_span = server_span
        self._inner_span: Span | None = None
        self._clock = clock
        self._phases = PhaseBuffer()
        self._first_token_ns: int | None = None
        self._is_finished = False
        self._lock = threading.Lock()

    @property
    def is_recording(self) -> bool:
        """False when nobody will see the spans; callers may skip costly attributes then."""
        return self._server_span.is_recording()

    @_never_fails
    def describe(
        self, *, operation: str, model: str, attributes: Mapping[str, AttributeValue | None]
    ) -> None:
        """Opens the inner span; call it as soon as the body is validated, before any phase.

        `operation` is chat or text_completion. Attributes that are None are left out.
        """
        with self._lock:
            if self._is_finished or self._inner_span is not None or not self.is_recording:
                return
            self._inner_span = self._spans.start(
                f"{operation} {model[:_MAX_NAME_LEN]}",
                parent=self._server_span.get_span_context(),
                kind=SpanKind.INTERNAL,
                attributes={
                    names.GEN_AI_OPERATION: operation,
                    names.GEN_AI_PROVIDER: PROVIDER,
                    names.GEN_AI_REQUEST_MODEL: model[:_MAX_TEXT_LEN],
                    **_bounded(attributes),
                },
                start_ns=self._clock(),
            )

    @_never_fails
    def submitted(self, engine_id: str, incarnation: str) -> None:
        """Which engine, and which run of it, has the request."""
        with self._lock:
            if self._inner_span is not None and not self._is_finished:
                self._inner_span.set_attribute(names.ATTR_ENGINE_ID, engine_id)
                self._inner_span.set_attribute(names.ATTR_INCARNATION, incarnation)

    @_never_fails
    def annotate(self, attributes: Mapping[str, AttributeValue | None]) -> None:
        """What became known of the request after it was described."""
        with self._lock:
            if self._inner_span is not None and not self._is_finished:
                _set(self._inner_span, _bounded(attributes))

    @_never_fails
    def add_phases(self, phases: Iterable[PhaseLike]) -> None:
        """Phases become spans when the request finishes."""
        with self._lock:
            if not self._is_finished and self.is_recording:
                self._phases.add(phases)

    @_never_fails
    def first_token(self, at_ns: int) -> None:
        """The first token of any choice, wall-clock ns; later calls change nothing."""
        with self._lock:
            if self._first_token_ns is None and not self._is_finished:
                self._first_token_ns = at_ns

    @_never_fails
    def finish(
        self,
        *,
        status: int,
        outcome: Outcome,
        finish_reasons: Sequence[str] = (),
        prompt_tokens: int | None = None,
        cached_tokens: int | None = None,
        written_tokens: int | None = None,
        completion_tokens: int | None = None,
        error: str | None = None,
    ) -> None:
        """Ends all spans; the first call counts. `error` is a code (low cardinality), no text."""
        with self._lock:
            if self._is_finished:
                return
            self._is_finished = True
        if not self.is_recording:
            return
        end_ns = self._clock()
        error_type = None if outcome == "ok" else error or outcome
        usage = {
            **_usage(prompt_tokens, cached_tokens, completion_tokens),
            names.GEN_AI_USAGE_CACHE_CREATION: written_tokens,
        }
        try:
            self._make_phase_spans()
            self._complete_inner(
                {**usage, names.GEN_AI_RESPONSE_FINISH_REASONS: tuple(finish_reasons) or None},
                error_type=error_type,
                is_aborted=outcome == "aborted",
            )
            self._complete_server(status, outcome, error_type=error_type)
        finally:
            if self._inner_span is not None:
                self._inner_span.end(end_ns)
            self._server_span.end(end_ns)

    def _make_phase_spans(self) -> None:
        parent = self._server_span if self._inner_span is None else self._inner_span
        for phase in self._phases.spans():
            span = self._spans.start(
                phase.name,
                parent=parent.get_span_context(),
                kind=SpanKind.INTERNAL,
                attributes=phase.attributes,
                start_ns=phase.start_ns,
            )
            span.end(phase.end_ns)

    def _complete_inner(
        self,
        attributes: Mapping[str, SpanValue | None],
        *,
        error_type: str | None,
        is_aborted: bool,
    ) -> None:
        span = self._inner_span
        if span is None:
            return
        _set(span, attributes)
        _set(
            span,
            {
                names.ATTR_MASK_TIME_MS: self._phases.mask_time_ms(),
                names.ATTR_FOLDED_PHASES: self._phases.num_folded() or None,
                names.ERROR_TYPE: error_type,
            },
        )
        self._record_first_token(span)
        if is_aborted:
            span.add_event(names.EVENT_ABORTED, timestamp=self._clock())
        if error_type is not None:
            span.set_status(StatusCode.ERROR, error_type)

    def _record_first_token(self, span: Span) -> None:
        if self._first_token_ns is None:
            return
        ttft_ns = max(0, self._first_token_ns - self.start_ns)
        span.add_event(names.EVENT_FIRST_TOKEN, timestamp=self._first_token_ns)
        span.set_attribute(names.ATTR_TTFT_MS, ttft_ns / _MS)
        span.set_attribute(names.GEN_AI_RESPONSE_FIRST_CHUNK, ttft_ns / _NS)

    def _complete_server(self, status: int, outcome: Outcome, *, error_type: str | None) -> None:
        span = self._server_span
        span.set_attribute(names.HTTP_STATUS, status)
        span.set_attribute(names.ATTR_OUTCOME, outcome)
        if error_type is None:
            return
        span.set_attribute(names.ERROR_TYPE, error_type)
        if _is_server_error(status, outcome):
            span.set_status(StatusCode.ERROR, error_type)


def _is_server_error(status: int, outcome: Outcome) -> bool:
    # HTTP conventions: a 4xx is the client's fault and leaves a SERVER span's status unset; a
    # stream that broke after its 200 is an error all the same.
    return outcome == "aborted" or not 400 <= status < 500


def _usage(
    prompt_tokens: int | None, cached_tokens: int | None, completion_tokens: int | None
) -> dict[str, SpanValue | None]:
    computed = None
    if prompt_tokens is not None and cached_tokens is not None:
        computed = prompt_tokens - cached_tokens
    return {
        names.GEN_AI_USAGE_INPUT: prompt_tokens,
        names.GEN_AI_USAGE_OUTPUT: completion_tokens,
        names.GEN_AI_USAGE_CACHE_READ: cached_tokens,
        names.ATTR_CACHED_TOKENS: cached_tokens,
        names.ATTR_COMPUTED_TOKENS: computed,
    }


def _set(span: Span, attributes: Mapping[str, SpanValue | None]) -> None:
    span.set_attributes({key: value for key, value in attributes.items() if value is not None})


def _bounded(attributes: Mapping[str, AttributeValue | None]) -> dict[str, SpanValue]:
    return {
        key: value[:_MAX_TEXT_LEN] if isinstance(value, str) else value
        for key, value in attributes.items()
        if value is not None
    }
