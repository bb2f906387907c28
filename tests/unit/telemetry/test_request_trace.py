"""The whole span tree of a request, for each way it can end."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Thread
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from telemetry import names
from telemetry.request_trace import RequestTrace
from telemetry.span_source import SpanDraft
from telemetry.testing import in_memory_tracing
from telemetry.tracing import Tracing


@dataclass(frozen=True)
class Phase:
    name: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    step: str = ""


@dataclass
class Recorder:
    """A Tracing and what it recorded."""

    tracing: Tracing
    spans: Any

    def start(self, **headers: str) -> RequestTrace:
        return self.tracing.start_request(
            method="POST", route="/v1/chat/completions", headers=headers, tenant_hash="t1"
        )

    def tree(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.spans.get_finished_spans()}


@pytest.fixture
def recorder() -> Recorder:
    return Recorder(*in_memory_tracing())


def describe(trace: RequestTrace, **attributes: Any) -> None:
    trace.describe(operation="chat", model="m", attributes=attributes)


def parent_of(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent else None


def id_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


PHASES = ("tokenize", "queue", "cache.match", "prefill", "decode")


@pytest.fixture
def answered(recorder: Recorder) -> RequestTrace:
    """A request that went through all phases, one nanosecond each."""
    trace = recorder.start()
    trace.describe(
        operation="chat",
        model="m",
        attributes={
            names.GEN_AI_REQUEST_MAX_TOKENS: 8,
            names.GEN_AI_REQUEST_TEMPERATURE: 0.5,
            names.GEN_AI_REQUEST_SEED: None,
        },
    )
    trace.submitted("engine-1", "run-7")
    at = trace.start_ns
    trace.add_phases([Phase("tokenize", at, at + 1, {names.ATTR_TOKENS: 20})])
    trace.add_phases(
        [
            Phase("queue", at + 1, at + 2),
            Phase("cache.match", at + 2, at + 3, {names.ATTR_CACHED_TOKENS: 16}),
            Phase("prefill", at + 3, at + 4, {names.ATTR_TOKENS: 4}),
            Phase("decode", at + 4, at + 5, {names.ATTR_STEPS: 3, names.ATTR_MASK_TIME_MS: 1.5}),
        ]
    )
    trace.first_token(at + 2_000_000)
    trace.finish(
        status=200,
        outcome="ok",
        finish_reasons=["stop"],
        prompt_tokens=20,
        cached_tokens=16,
        written_tokens=4,
        completion_tokens=3,
    )
    return trace


def test_success_has_a_server_span_at_the_root(recorder: Recorder, answered: RequestTrace) -> None:
    tree = recorder.tree()
    server = tree["POST /v1/chat/completions"]
    assert f"{id_of(server):016x}" in answered.traceparent
    assert server.kind is SpanKind.SERVER
    assert parent_of(server) is None
    assert dict(server.attributes or {}) == {
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 200,
        "radixgate.outcome": "ok",
        "radixgate.tenant": "t1",
    }
    assert {span.status.status_code for span in tree.values()} == {StatusCode.UNSET}
    assert set(tree) == {server.name, "chat m", *PHASES}


def test_success_has_a_model_span_with_request_response_and_usage(
    recorder: Recorder, answered: RequestTrace
) -> None:
    tree = recorder.tree()
    inner = tree["chat m"]
    assert inner.kind is SpanKind.INTERNAL
    assert parent_of(inner) == id_of(tree["POST /v1/chat/completions"])
    assert dict(inner.attributes or {}) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "radixgate",
        "gen_ai.request.model": "m",
        "gen_ai.request.max_tokens": 8,
        "gen_ai.request.temperature": 0.5,
        "radixgate.engine.id": "engine-1",
        "radixgate.engine.incarnation": "run-7",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.response.time_to_first_chunk": 0.002,
        "gen_ai.usage.input_tokens": 20,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.usage.cache_read.input_tokens": 16,
        "gen_ai.usage.cache_creation.input_tokens": 4,
        "radixgate.cache.hit_tokens": 16,
        "radixgate.cache.computed_tokens": 4,
        "radixgate.grammar.mask_time_ms": 1.5,
        "radixgate.queue.wait_ms": 1e-06,
        "radixgate.ttft_ms": 2.0,
    }
    assert [(event.name, event.timestamp) for event in inner.events] == [
        ("first_token", answered.start_ns + 2_000_000)
    ]


def test_success_has_a_span_for_each_phase_with_its_own_times(
    recorder: Recorder, answered: RequestTrace
) -> None:
    tree = recorder.tree()
    for offset, name in enumerate(PHASES):
        span, at = tree[name], answered.start_ns + offset
        assert parent_of(span) == id_of(tree["chat m"])
        assert (span.start_time, span.end_time) == (at, at + 1)
        assert span.kind is SpanKind.INTERNAL
    assert dict(tree["prefill"].attributes or {}) == {"radixgate.tokens": 4}


def test_an_abort_is_an_error_with_its_own_type_and_event(recorder: Recorder) -> None:
    trace = recorder.start()
    describe(trace)
    trace.add_phases([Phase("queue", trace.start_ns, trace.start_ns + 1)])
    trace.finish(status=200, outcome="aborted")
    tree = recorder.tree()
    assert set(tree) == {"POST /v1/chat/completions", "chat m", "queue"}
    for name in ("POST /v1/chat/completions", "chat m"):
        assert tree[name].status.status_code is StatusCode.ERROR
        assert (tree[name].attributes or {})["error.type"] == "aborted"
    assert [event.name for event in tree["chat m"].events] == ["aborted"]


@pytest.mark.parametrize("status", [200, 500, 503, 504])
def test_an_error_marks_both_spans_even_after_a_200_was_sent(
    recorder: Recorder, status: int
) -> None:
    trace = recorder.start()
    describe(trace)
    trace.finish(status=status, outcome="error", error="engine_died")
    for span in recorder.tree().values():
        assert span.status.status_code is StatusCode.ERROR
        assert (span.attributes or {})["error.type"] == "engine_died"


@pytest.mark.parametrize(("status", "code"), [(400, StatusCode.UNSET), (503, StatusCode.ERROR)])
def test_a_rejection_is_the_servers_error_only_when_it_is_a_5xx(
    recorder: Recorder, status: int, code: StatusCode
) -> None:
    trace = recorder.start()
    trace.finish(status=status, outcome="rejected", error="queue_full")
    (server,) = recorder.tree().values()
    assert server.status.status_code is code
    assert (server.attributes or {})["error.type"] == "queue_full"
    assert (server.attributes or {})["radixgate.outcome"] == "rejected"


def test_phases_of_a_request_without_a_model_span_hang_on_the_server_span(
    recorder: Recorder,
) -> None:
    trace = recorder.start()
    trace.add_phases([Phase("tokenize", 5, 6)])
    trace.finish(status=400, outcome="rejected")
    tree = recorder.tree()
    assert parent_of(tree["tokenize"]) == id_of(tree["POST /v1/chat/completions"])


def test_only_the_first_finish_counts_and_nothing_follows_it(recorder: Recorder) -> None:
    trace = recorder.start()
    describe(trace)
    trace.finish(status=200, outcome="ok")
    trace.finish(status=500, outcome="error", error="late")
    trace.add_phases([Phase("decode", 1, 2)])
    describe(trace)
    trace.first_token(5)
    tree = recorder.tree()
    assert set(tree) == {"POST /v1/chat/completions", "chat m"}
    assert {span.status.status_code for span in tree.values()} == {StatusCode.UNSET}


def test_many_threads_that_finish_at_once_end_each_span_once(recorder: Recorder) -> None:
    trace = recorder.start()
    describe(trace)
    threads = [
        Thread(target=trace.finish, kwargs={"status": 200, "outcome": "ok"}) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert len(recorder.spans.get_finished_spans()) == 2


def test_ten_thousand_chunks_become_few_spans_and_an_honest_count(recorder: Recorder) -> None:
    trace = recorder.start()
    describe(trace)
    trace.add_phases(Phase("prefill", i, i + 1, {names.ATTR_TOKENS: 7}) for i in range(10_000))
    trace.add_phases([Phase("decode", 10_000, 10_001)])
    trace.finish(status=200, outcome="ok")
    spans = recorder.spans.get_finished_spans()
    prefills = [span for span in spans if span.name == "prefill"]
    assert len(prefills) <= 65
    assert sum(span.attributes[names.ATTR_TOKENS] for span in prefills) == 70_000
    assert recorder.tree()["decode"].attributes == {}
    folded = (recorder.tree()["chat m"].attributes or {})["radixgate.phases.folded"]
    assert folded == 10_000 - (len(prefills) - 1)


def test_a_clients_long_texts_are_cut(recorder: Recorder) -> None:
    trace = recorder.start()
    trace.describe(
        operation="chat",
        model="m" * 10_000,
        attributes={names.GEN_AI_RESPONSE_MODEL: "m" * 10_000},
    )
    trace.finish(status=404, outcome="rejected")
    (inner,) = (span for span in recorder.tree().values() if span.name.startswith("chat"))
    assert len(inner.name) < 200
    attributes = inner.attributes or {}
    for name in (names.GEN_AI_REQUEST_MODEL, names.GEN_AI_RESPONSE_MODEL):
        assert len(str(attributes[name])) <= 1024


class BrokenDraft(SpanDraft):
    """A SERVER span that can have no children."""

    def child(self, name: str, **_: object) -> SpanDraft:
        raise RuntimeError(name)


def broken_trace(*, strict: bool) -> tuple[RequestTrace, Recorder]:
    recorder = Recorder(*in_memory_tracing())
    whole = recorder.start()
    sound = whole._server_span
    draft = BrokenDraft(
        sound.name, sound.context, None, sound.kind, sound.start_ns, is_recorded=True
    )
    spans = recorder.tracing._spans
    return RequestTrace(spans, draft, start_ns=whole.start_ns, strict=strict), recorder


def test_a_fault_in_telemetry_never_reaches_the_request_and_loses_no_span(
    caplog: pytest.LogCaptureFixture,
) -> None:
    trace, recorder = broken_trace(strict=False)
    describe(trace)
    trace.add_phases([Phase("queue", 1, 2)])
    trace.finish(status=200, outcome="ok")
    assert set(recorder.tree()) == {"POST /v1/chat/completions"}
    assert [record.getMessage() for record in caplog.records] == [
        "a trace is incomplete: describe failed",
        "a trace is incomplete: finish failed",
    ]


def test_a_fault_in_telemetry_is_raised_in_tests() -> None:
    trace, _ = broken_trace(strict=True)
    with pytest.raises(RuntimeError, match="chat m"):
        describe(trace)


def test_a_preemption_is_an_event_between_the_others_and_no_span(recorder: Recorder) -> None:
    trace = recorder.start()
    describe(trace)
    at = trace.start_ns
    trace.add_phases(
        [
            Phase("prefill", at, at + 1),
            Phase(names.EVENT_PREEMPTED, at + 5, at + 5, {names.ATTR_PREEMPTION_REASON: "memory"}),
            Phase(names.EVENT_RESUMED, at + 9, at + 9, {names.ATTR_CACHED_TOKENS: 16}),
        ]
    )
    trace.first_token(at + 3)
    trace.finish(status=200, outcome="aborted")
    tree = recorder.tree()
    assert set(tree) == {"POST /v1/chat/completions", "chat m", "prefill"}
    events = tree["chat m"].events
    assert [event.name for event in events] == ["first_token", "preempted", "resumed", "aborted"]
    assert [event.timestamp - at for event in events[:3]] == [3, 5, 9]
    assert dict(events[1].attributes or {}) == {"radixgate.preemption.reason": "memory"}
    assert (tree["chat m"].attributes or {})["radixgate.preemptions"] == 1


def test_a_chunk_has_a_link_to_the_step_that_computed_it(recorder: Recorder) -> None:
    trace = recorder.start()
    describe(trace)
    step = f"00-{5:032x}-{7:016x}-01"
    trace.add_phases([Phase("prefill", 1, 2, step=step), Phase("decode", 2, 3)])
    trace.finish(status=200, outcome="ok")
    tree = recorder.tree()
    (link,) = tree["prefill"].links
    assert (link.context.trace_id, link.context.span_id) == (5, 7)
    assert tree["decode"].links == ()
