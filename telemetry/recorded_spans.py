"""From drafts to spans of the OpenTelemetry SDK, on their way to its processor. Imports the SDK;
setup.py makes the one of a server when a collector is configured.
"""

from collections.abc import Mapping, Sequence

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, SpanLimits, SpanProcessor, sampling
from opentelemetry.sdk.util import BoundedList
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from opentelemetry.util.types import Attributes

from telemetry.span_source import SpanDraft, SpanEvent, SpanValue, random_id

_UNSET = Status(StatusCode.UNSET)


class RecordedSpans:
    """A SpanSource: sampled, limited and exported as the SDK's settings say. Thread-safe."""

    def __init__(
        self,
        processor: SpanProcessor,
        *,
        sampler: sampling.Sampler,
        resource: Resource,
        scope: InstrumentationScope,
        limits: SpanLimits,
    ) -> None:
        self._processor = processor
        self._sampler = sampler
        self._resource = resource
        self._scope = scope
        self._limits = limits

    def start(
        self,
        name: str,
        *,
        parent: SpanContext | None,
        attributes: Mapping[str, SpanValue],
        start_ns: int,
    ) -> SpanDraft:
        # An explicit, otherwise empty context: spans of the caller's thread are not our parents.
        context = Context()
        trace_id, random_flag = random_id(128), TraceFlags.RANDOM_TRACE_ID
        if parent is not None:
            context = set_span_in_context(NonRecordingSpan(parent), context)
            trace_id, random_flag = parent.trace_id, parent.trace_flags & random_flag
        result = self._sampler.should_sample(
            context, trace_id, name, kind=SpanKind.SERVER, attributes=attributes
        )
        is_sampled = result.decision is sampling.Decision.RECORD_AND_SAMPLE
        own = SpanContext(
            trace_id,
            random_id(64),
            is_remote=False,
            trace_flags=TraceFlags(random_flag | (TraceFlags.SAMPLED if is_sampled else 0)),
            trace_state=result.trace_state,
        )
        return SpanDraft(
            name,
            own,
            parent,
            SpanKind.SERVER,
            start_ns,
            is_recorded=is_sampled,
            attributes={**attributes},
        )

    def end(self, spans: Sequence[SpanDraft]) -> None:
        for draft in spans:
            if draft.is_recorded:
                self._processor.on_end(self._finished(draft))

    def _finished(self, draft: SpanDraft) -> ReadableSpan:
        return ReadableSpan(
            draft.name,
            context=draft.context,
            parent=draft.parent,
            resource=self._resource,
            attributes=self._bounded(draft.attributes),
            events=self._events(draft.events) if draft.events else (),
            links=self._links(draft.links) if draft.links else (),
            kind=draft.kind,
            status=_UNSET if draft.error is None else Status(StatusCode.ERROR, draft.error),
            start_time=draft.start_ns,
            end_time=draft.end_ns,
            instrumentation_scope=self._scope,
        )

    def _bounded(self, attributes: dict[str, SpanValue]) -> Attributes:
        """As they are, except where a limit is exceeded: the SDK's container costs ten times as
        much as a dict."""
        limits = self._limits
        max_len = limits.max_span_attribute_length
        has_room = (
            limits.max_span_attributes is None or len(attributes) <= limits.max_span_attributes
        )
        if has_room and (max_len is None or not _has_longer(attributes, max_len)):
            return attributes
        return BoundedAttributes(limits.max_span_attributes, attributes, max_value_len=max_len)

    def _events(self, events: Sequence[SpanEvent]) -> Sequence[Event]:
        made = [Event(one.name, one.attributes, one.at_ns) for one in events]
        if self._limits.max_events is None:
            return made
        return BoundedList.from_seq(self._limits.max_events, made)

    def _links(self, links: Sequence[SpanContext]) -> Sequence[Link]:
        made = [Link(context) for context in links]
        if self._limits.max_links is None:
            return made
        return BoundedList.from_seq(self._limits.max_links, made)


def _has_longer(attributes: Mapping[str, SpanValue], max_len: int) -> bool:
    """Whether a text is longer. Of lists the SDK looks at each entry."""
    for value in attributes.values():
        if isinstance(value, str):
            if len(value) > max_len:
                return True
        elif isinstance(value, tuple) and any(len(entry) > max_len for entry in value):
            return True
    return False
