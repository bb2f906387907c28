"""What becomes of a draft in the SDK: sampling, limits, status, links."""

import pytest
from opentelemetry.sdk.trace import ReadableSpan, sampling
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, SpanKind, StatusCode, TraceFlags

from telemetry.setup import make_spans
from telemetry.span_source import SpanDraft, SpanEvent


class Recorded:
    """A source, and what it gave to the SDK."""

    def __init__(self, sampler: sampling.Sampler = sampling.ALWAYS_ON) -> None:
        self.exporter = InMemorySpanExporter()
        self.source = make_spans(
            SimpleSpanProcessor(self.exporter), sampler=sampler, service_version="1"
        )

    def draft(self, parent: SpanContext | None = None) -> SpanDraft:
        draft = self.source.start("s", parent=parent, attributes={"a": 1}, start_ns=5)
        draft.end_ns = 9
        return draft

    def end(self, *drafts: SpanDraft) -> tuple[ReadableSpan, ...]:
        self.source.end(drafts)
        return self.exporter.get_finished_spans()


def caller(flags: int) -> SpanContext:
    return SpanContext(11, 12, is_remote=True, trace_flags=TraceFlags(flags))


def test_a_draft_becomes_a_span_with_all_that_it_has() -> None:
    recorded = Recorded()
    draft = recorded.draft(caller(1))
    draft.events = [SpanEvent("e", 7, {"k": "v"})]
    draft.links = (SpanContext(21, 22, is_remote=True),)
    draft.error = "why"
    (span,) = recorded.end(draft)
    assert (span.name, span.kind, span.start_time, span.end_time) == ("s", SpanKind.SERVER, 5, 9)
    assert span.context == draft.context
    assert span.parent == caller(1)
    assert dict(span.attributes or {}) == {"a": 1}
    assert [(e.name, e.timestamp, dict(e.attributes or {})) for e in span.events] == [
        ("e", 7, {"k": "v"})
    ]
    assert [link.context.span_id for link in span.links] == [22]
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "why")
    assert span.instrumentation_scope is not None
    assert span.instrumentation_scope.name == "radixgate"


def test_a_child_is_in_its_parents_trace_and_recorded_with_it() -> None:
    recorded = Recorded()
    root = recorded.draft()
    child = root.child("c", start_ns=6, end_ns=7, attributes={})
    spans = recorded.end(child, root)
    assert [span.name for span in spans] == ["c", "s"]
    assert spans[0].parent == root.context
    assert child.context.trace_id == root.context.trace_id
    assert child.context.span_id != root.context.span_id
    assert spans[0].status.status_code is StatusCode.UNSET


@pytest.mark.parametrize(
    ("sampler", "flags", "is_recorded"),
    [
        (sampling.ParentBased(sampling.ALWAYS_ON), 0, False),
        (sampling.ParentBased(sampling.ALWAYS_OFF), 1, True),
        (sampling.ParentBased(sampling.ALWAYS_OFF), None, False),
        (sampling.ALWAYS_ON, 0, True),
        (sampling.TraceIdRatioBased(0.0), 1, False),
    ],
)
def test_the_sampler_decides_for_the_whole_trace(
    sampler: sampling.Sampler, flags: int | None, is_recorded: bool
) -> None:
    recorded = Recorded(sampler)
    root = recorded.draft(None if flags is None else caller(flags))
    child = root.child("c", start_ns=6, attributes={})
    assert root.is_recorded is child.is_recorded is is_recorded
    assert bool(root.context.trace_flags.sampled) is is_recorded
    assert len(recorded.end(child, root)) == (2 if is_recorded else 0)


@pytest.mark.parametrize("flags", [0, 1, 2, 3])
def test_how_the_callers_trace_id_was_made_is_passed_on(flags: int) -> None:
    own = Recorded(sampling.ParentBased(sampling.ALWAYS_ON)).draft(caller(flags)).context
    assert own.trace_flags == flags


def test_new_ids_are_random_and_say_so() -> None:
    drafts = [Recorded().draft() for _ in range(50)]
    assert len({draft.context.trace_id for draft in drafts}) == 50
    assert all(draft.context.is_valid for draft in drafts)
    assert all(draft.context.trace_flags == 3 for draft in drafts)


def test_limits_of_the_specification_are_kept_and_what_is_dropped_is_counted() -> None:
    recorded = Recorded()
    draft = recorded.draft()
    draft.attributes |= {f"n{number}": number for number in range(200)}
    draft.events = [SpanEvent("e", number) for number in range(200)]
    draft.links = tuple(SpanContext(1, number, is_remote=True) for number in range(1, 201))
    (span,) = recorded.end(draft)
    assert (len(span.attributes or {}), len(span.events), len(span.links)) == (128, 128, 128)
    assert (span.dropped_attributes, span.dropped_events, span.dropped_links) == (73, 72, 72)


def test_each_text_of_a_list_is_cut_as_a_single_one_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "10")
    recorded = Recorded()
    draft = recorded.draft()
    draft.attributes["list"] = ("x" * 11, "y")
    (span,) = recorded.end(draft)
    assert (span.attributes or {})["list"] == ("x" * 10, "y")


def test_limits_may_be_lifted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "")
    recorded = Recorded()
    draft = recorded.draft()
    draft.attributes["long"] = "x" * 1_000_000
    (span,) = recorded.end(draft)
    assert (span.attributes or {})["long"] == "x" * 1_000_000
