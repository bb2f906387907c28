"""A recorded step on its way to a collector."""

import pytest
from opentelemetry.trace import SpanKind

from runtime.messages import StepSpan
from telemetry.span_source import SpanDraft
from telemetry.step_spans import make_step_span
from telemetry.testing import in_memory_tracing
from telemetry.tracing import Tracing

STEP = f"00-{5:032x}-{6:016x}-01"


def traceparent(number: int) -> str:
    return f"00-{number:032x}-{number:016x}-01"


def step(own: str = STEP, *requests: str) -> StepSpan:
    return StepSpan(own, 10, 30, {"radixgate.step.number": 4}, list(requests))


def test_a_step_is_a_trace_of_its_own_under_the_ids_it_came_with() -> None:
    tracing, exporter = in_memory_tracing()
    tracing.record_step(step(STEP, traceparent(1), traceparent(2)))
    (span,) = exporter.get_finished_spans()
    assert span.context is not None
    assert (span.name, span.kind, span.parent) == ("engine.step", SpanKind.INTERNAL, None)
    assert (span.context.trace_id, span.context.span_id) == (5, 6)
    assert not span.context.is_remote
    assert (span.start_time, span.end_time) == (10, 30)
    assert dict(span.attributes or {}) == {"radixgate.step.number": 4}
    assert [link.context.span_id for link in span.links] == [1, 2]


def test_a_step_never_ends_before_it_starts() -> None:
    draft = make_step_span(StepSpan(STEP, 30, 10))
    assert draft is not None
    assert (draft.start_ns, draft.end_ns) == (30, 30)


@pytest.mark.parametrize("own", ["", "nonsense", f"00-{0:032x}-{6:016x}-01"])
def test_a_step_without_ids_is_no_span(own: str) -> None:
    tracing, exporter = in_memory_tracing()
    tracing.record_step(step(own))
    assert exporter.get_finished_spans() == ()


def test_a_request_without_a_traceparent_has_no_link() -> None:
    draft = make_step_span(step(STEP, "nonsense", traceparent(2), ""))
    assert draft is not None
    assert [link.span_id for link in draft.links] == [2]


class BrokenSpans:
    """Takes nothing."""

    def start(self, *_args: object, **_options: object) -> SpanDraft:
        raise AssertionError

    def end(self, *_args: object) -> None:
        raise RuntimeError("no room")


def test_a_fault_costs_the_span_and_a_line(caplog: pytest.LogCaptureFixture) -> None:
    Tracing(BrokenSpans()).record_step(step())
    assert "no room" in caplog.text
    with pytest.raises(RuntimeError, match="no room"):
        Tracing(BrokenSpans(), strict=True).record_step(step())


def test_without_a_collector_a_step_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(key, raising=False)
    tracing = Tracing.from_environment(service_version="1")
    tracing.record_step(step())
    assert (tracing.num_exported_spans, tracing.num_dropped_spans) == (0, 0)
