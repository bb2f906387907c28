"""The spans of one request: SERVER `POST /v1/...` > INTERNAL `chat <model>` > one per phase.

Any thread may call it. After finish() every call is ignored. Content is recorded by
record_content() only.
"""

import functools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Concatenate, Literal, ParamSpec

from telemetry import names
from telemetry.logs import stack_of
from telemetry.phases import PhaseBuffer, PhaseLike
from telemetry.settings import MAX_CONTENT_LEN
from telemetry.span_source import SpanDraft, SpanEvent, SpanSource, SpanValue
from telemetry.step_spans import context_of
from telemetry.w3c import format_traceparent

Outcome = Literal["ok", "aborted", "error", "rejected"]

PROVIDER = "radixgate"
# A client chooses the model's name: what a span keeps of it is bounded.
_MAX_NAME_LEN = 128
_MAX_TEXT_LEN = 1024
_MAX_ITEMS = 32
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
        except Exception as error:
            if self.is_strict:
                raise
            fields = {
                "trace_id": self.trace_id,
                "span_id": self.span_id,
                "exception": stack_of(error),
            }
            _logger.error("a trace is incomplete: %s failed", method.__name__, extra=fields)

    return guarded


class RequestTrace:
    """Made by Tracing.start_request(); the caller must finish() it on every path."""

    def __init__(
        self,
        spans: SpanSource,
        server_span: SpanDraft,
        *,
        start_ns: int,
        clock: Callable[[], int] = time.time_ns,
        strict: bool = False,
        max_content_len: int = MAX_CONTENT_LEN,
    ) -> None:
        self.start_ns = start_ns
        self._max_content_len = max_content_len
        self.is_strict = strict
        context = server_span.context
        self.trace_id = f"{context.trace_id:032x}"
        self.span_id = f"{context.span_id:016x}"
        self.traceparent = format_traceparent(context)
        self.tracestate = context.trace_state.to_header()
        self._spans = spans
        self._server_span = server_span
        self._inner_span: SpanDraft | None = None
        self._clock = clock
        self._phases = PhaseBuffer()
        self._first_token_ns: int | None = None
        self._is_finished = False
        self._lock = threading.Lock()

    @property
    def is_recording(self) -> bool:
        """False when nobody will see the spans; callers may skip costly attributes then."""
        return self._server_span.is_recorded

    @_never_fails
    def describe(
        self, *, operation: str, model: str, attributes: Mapping[str, SpanValue | None]
    ) -> None:
        """Opens the inner span; call it as soon as the body is validated, before any phase.

        `operation` is chat, text_completion or embeddings. Attributes that are None are left out.
        """
        with self._lock:
            if self._is_finished or self._inner_span is not None or not self.is_recording:
                return
            self._inner_span = self._server_span.child(
                f"{operation} {model[:_MAX_NAME_LEN]}",
                attributes={
                    names.GEN_AI_OPERATION: operation,
                    names.GEN_AI_PROVIDER: PROVIDER,
                    names.GEN_AI_REQUEST_MODEL: model[:_MAX_TEXT_LEN],
                    **_address_of(self._server_span),
                    **_bounded(attributes),
                },
                start_ns=self._clock(),
            )

    @_never_fails
    def submitted(self, engine_id: str, incarnation: str) -> None:
        """Which engine, and which run of it, has the request."""
        with self._lock:
            if self._inner_span is not None and not self._is_finished:
                self._inner_span.attributes[names.ATTR_ENGINE_ID] = engine_id
                self._inner_span.attributes[names.ATTR_INCARNATION] = incarnation

    @_never_fails
    def annotate(self, attributes: Mapping[str, SpanValue | None]) -> None:
        """What became known of the request after it was described."""
        with self._lock:
            if self._inner_span is not None and not self._is_finished:
                self._inner_span.attributes |= _bounded(attributes)

    @_never_fails
    def record_content(self, make: Callable[[int], Mapping[str, str]]) -> None:
        """Asks `make`, if anybody will see it, for attributes of at most so many characters."""
        with self._lock:
            if self._inner_span is not None and not self._is_finished and self.is_recording:
                self._inner_span.attributes |= make(self._max_content_len)

    @_never_fails
    def add_phases(self, phases: Iterable[PhaseLike]) -> None:
        """Phases become spans, or events where they are moments, when the request finishes."""
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
        # The SERVER span comes last: who has it has the whole trace.
        whole = [one for one in (self._inner_span, self._server_span) if one is not None]
        for span in whole:
            span.end_ns = end_ns
        try:
            whole = [*self._make_phase_spans(), *whole]
            self._complete_inner(
                {**usage, names.GEN_AI_RESPONSE_FINISH_REASONS: tuple(finish_reasons) or None},
                error_type=error_type,
                is_aborted=outcome == "aborted",
            )
            self._complete_server(status, outcome, error_type=error_type)
        finally:
            self._spans.end(whole)

    def _make_phase_spans(self) -> list[SpanDraft]:
        parent = self._server_span if self._inner_span is None else self._inner_span
        parent.events += [
            SpanEvent(moment.name, moment.end_ns, moment.attributes)
            for moment in self._phases.moments()
        ]
        spans = []
        for phase in self._phases.spans():
            span = parent.child(
                phase.name,
                start_ns=phase.start_ns,
                end_ns=phase.end_ns,
                attributes={**phase.attributes},
            )
            if (step := context_of(phase.step)) is not None:
                span.links = (step,)
            spans.append(span)
        return spans

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
        span.attributes |= _present(attributes)
        span.attributes |= _present(
            {
                **self._phases.summary(),
                names.ATTR_FOLDED_PHASES: self._phases.num_folded() or None,
                names.ERROR_TYPE: error_type,
            }
        )
        self._record_first_token(span)
        if is_aborted:
            span.events.append(SpanEvent(names.EVENT_ABORTED, span.end_ns))
        span.events.sort(key=lambda event: event.at_ns)
        span.error = error_type

    def _record_first_token(self, span: SpanDraft) -> None:
        if self._first_token_ns is None:
            return
        ttft_ns = max(0, self._first_token_ns - self.start_ns)
        span.events.append(SpanEvent(names.EVENT_FIRST_TOKEN, self._first_token_ns))
        span.attributes[names.ATTR_TTFT_MS] = ttft_ns / _MS
        span.attributes[names.GEN_AI_RESPONSE_FIRST_CHUNK] = ttft_ns / _NS

    def _complete_server(self, status: int, outcome: Outcome, *, error_type: str | None) -> None:
        span = self._server_span
        span.attributes[names.HTTP_STATUS] = status
        span.attributes[names.ATTR_OUTCOME] = outcome
        if error_type is None:
            return
        span.attributes[names.ERROR_TYPE] = error_type
        if _is_server_error(status, outcome):
            span.error = error_type


def _address_of(server_span: SpanDraft) -> dict[str, SpanValue]:
    """Who serves the model is who took the request."""
    keys = (names.SERVER_ADDRESS, names.SERVER_PORT)
    return {key: server_span.attributes[key] for key in keys if key in server_span.attributes}


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


def _present(attributes: Mapping[str, SpanValue | None]) -> dict[str, SpanValue]:
    return {key: value for key, value in attributes.items() if value is not None}


def _bounded(attributes: Mapping[str, SpanValue | None]) -> dict[str, SpanValue]:
    return {key: _cut(value) for key, value in attributes.items() if value is not None}


def _cut(value: SpanValue) -> SpanValue:
    if isinstance(value, str):
        return value[:_MAX_TEXT_LEN]
    if isinstance(value, tuple):
        return tuple(item[:_MAX_TEXT_LEN] for item in value[:_MAX_ITEMS])
    return value
