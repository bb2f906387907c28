"""Where spans come from: the OpenTelemetry SDK, or ids alone when no collector is configured."""

import secrets
from collections.abc import Mapping
from typing import Protocol

from opentelemetry.context import Context
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    TraceFlags,
    Tracer,
    set_span_in_context,
)

SpanValue = str | int | float | bool | tuple[str, ...]


class SpanSource(Protocol):
    """Starts spans; never looks at the current context, only at `parent`."""

    def start(
        self,
        name: str,
        *,
        parent: SpanContext | None,
        kind: SpanKind,
        attributes: Mapping[str, SpanValue],
        start_ns: int,
    ) -> Span: ...


class RecordingSpans:
    """Spans of the SDK: sampled, limited and exported as its tracer says."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def start(
        self,
        name: str,
        *,
        parent: SpanContext | None,
        kind: SpanKind,
        attributes: Mapping[str, SpanValue],
        start_ns: int,
    ) -> Span:
        # An explicit, otherwise empty context: spans of the caller's thread are not our parents.
        context = Context()
        if parent is not None:
            context = set_span_in_context(NonRecordingSpan(parent), context)
        return self._tracer.start_span(
            name, context=context, kind=kind, attributes=attributes, start_time=start_ns
        )


class UnrecordedSpans:
    """New span ids in the caller's trace, with the caller's sampled flag; nothing is recorded.

    A trace that starts here is not sampled. The SDK is not imported.
    """

    def start(
        self,
        name: str,  # noqa: ARG002
        *,
        parent: SpanContext | None,
        kind: SpanKind,  # noqa: ARG002
        attributes: Mapping[str, SpanValue],  # noqa: ARG002
        start_ns: int,  # noqa: ARG002
    ) -> Span:
        return NonRecordingSpan(
            SpanContext(
                trace_id=_random_id(16) if parent is None else parent.trace_id,
                span_id=_random_id(8),
                is_remote=False,
                trace_flags=TraceFlags(0) if parent is None else parent.trace_flags,
                trace_state=None if parent is None else parent.trace_state,
            )
        )


def _random_id(num_bytes: int) -> int:
    # Zero is not a valid id; one draw in 2**64 at most meets it.
    return secrets.randbits(num_bytes * 8) or 1
