"""From a step that the runtime has recorded to its span: a trace of its own, with links to the
requests in its batch. Tracing ends it."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from opentelemetry.trace import SpanContext, SpanKind

from telemetry import names
from telemetry.phases import AttributeValue
from telemetry.span_source import SpanDraft
from telemetry.w3c import read_context


class StepLike(Protocol):
    """A recorded step; `runtime.messages.StepSpan` is one. Times are wall-clock nanoseconds."""

    @property
    def traceparent(self) -> str: ...
    @property
    def start_ns(self) -> int: ...
    @property
    def end_ns(self) -> int: ...
    @property
    def attributes(self) -> Mapping[str, AttributeValue]: ...
    @property
    def requests(self) -> Sequence[str]: ...


def make_step_span(step: StepLike) -> SpanDraft | None:
    """The span keeps the ids that the step came with, as prefill spans link to them. None where
    its traceparent is none."""
    own = context_of(step.traceparent)
    if own is None:
        return None
    return SpanDraft(
        names.SPAN_ENGINE_STEP,
        SpanContext(own.trace_id, own.span_id, is_remote=False, trace_flags=own.trace_flags),
        None,
        SpanKind.INTERNAL,
        step.start_ns,
        is_recorded=True,
        end_ns=max(step.start_ns, step.end_ns),
        attributes={**step.attributes},
        links=tuple(filter(None, map(context_of, step.requests))),
    )


def context_of(traceparent: str) -> SpanContext | None:
    """What a span links to; None for what is no traceparent."""
    return read_context({"traceparent": traceparent}) if traceparent else None
