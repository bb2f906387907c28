"""Spans reach a real OTLP receiver over both protocols, and a bad collector harms nobody."""

import logging
import time
from collections.abc import Callable

import pytest

from runtime.messages import Phase, StepSpan
from telemetry import names, tracing
from telemetry.tracing import RequestTrace, Tracing
from tests.otlp_receiver import (
    Protocol,
    black_hole,
    closed_port,
    otlp_receiver,
    refusing_collector,
)

PROTOCOLS: tuple[Protocol, ...] = ("grpc", "http/protobuf")
NUM_SPANS = 4


@pytest.fixture
def setenv(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], None]:
    def set_all(environment: dict[str, str]) -> None:
        for key, value in environment.items():
            monkeypatch.setenv(key, value)

    return set_all


def answered_request(target: Tracing) -> RequestTrace:
    trace = target.start_request(
        method="POST", route="/v1/chat/completions", headers={}, tenant_hash="t1"
    )
    trace.describe(
        operation="chat",
        model="m",
        attributes={names.GEN_AI_REQUEST_MAX_TOKENS: 8},
    )
    start = trace.start_ns
    trace.add_phases(
        [
            Phase(names.SPAN_QUEUE, start, start + 10),
            Phase(names.SPAN_PREFILL, start + 10, start + 30, {names.ATTR_TOKENS: 20}),
        ]
    )
    trace.first_token(start + 30)
    trace.finish(status=200, outcome="ok", finish_reasons=["stop"], prompt_tokens=20)
    return trace


def recorded_step(target: Tracing, *requests: RequestTrace) -> None:
    links = [trace.traceparent for trace in requests]
    own = f"00-{0xABC:032x}-{0xDEF:016x}-01"
    target.record_step(StepSpan(own, 10, 40, {names.ATTR_STEP_NUMBER: 7}, links))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_step_arrives_with_its_ids_and_links(
    protocol: Protocol, setenv: Callable[[dict[str, str]], None]
) -> None:
    with otlp_receiver(protocol) as receiver:
        setenv(receiver.environment)
        target = Tracing.from_environment(service_version="9.9")
        traces = [answered_request(target) for _ in range(2)]
        recorded_step(target, *traces)
        spans = receiver.wait_for_spans(2 * NUM_SPANS + 1)
        target.shutdown()
    (step,) = [span for span in spans if span.name == "engine.step"]
    assert (step.trace_id, step.span_id) == (f"{0xABC:032x}", f"{0xDEF:016x}")
    assert (step.parent_id, step.kind, step.start_ns, step.end_ns) == ("", "INTERNAL", 10, 40)
    assert step.attributes == {"radixgate.step.number": 7}
    servers = [(span.trace_id, span.span_id) for span in spans if span.kind == "SERVER"]
    assert list(step.links) == servers
    assert step.resource["service.name"] == "radixgate"
    assert (target.num_exported_spans, target.num_dropped_spans) == (2 * NUM_SPANS + 1, 0)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_request_arrives_as_one_whole_trace(
    protocol: Protocol, setenv: Callable[[dict[str, str]], None]
) -> None:
    with otlp_receiver(protocol) as receiver:
        setenv(receiver.environment)
        target = Tracing.from_environment(service_version="9.9")
        trace = answered_request(target)
        spans = {span.name: span for span in receiver.wait_for_spans(NUM_SPANS)}
        target.shutdown()

    server, inner = spans["POST /v1/chat/completions"], spans["chat m"]
    assert {span.trace_id for span in spans.values()} == {trace.trace_id}
    assert (server.kind, server.parent_id, server.status) == ("SERVER", "", "UNSET")
    assert (inner.kind, inner.parent_id, inner.events) == (
        "INTERNAL",
        server.span_id,
        ("first_token",),
    )
    assert inner.attributes["gen_ai.request.max_tokens"] == 8
    assert inner.attributes["gen_ai.response.finish_reasons"] == ("stop",)
    assert inner.attributes["gen_ai.usage.input_tokens"] == 20
    assert spans["prefill"].parent_id == spans["queue"].parent_id == inner.span_id
    assert spans["prefill"].end_ns - spans["prefill"].start_ns == 20
    assert spans["prefill"].attributes == {"radixgate.tokens": 20}
    assert server.resource["service.name"] == "radixgate"
    assert server.resource["service.version"] == "9.9"
    assert (target.num_exported_spans, target.num_dropped_spans) == (NUM_SPANS, 0)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_shutdown_delivers_what_is_still_queued(
    protocol: Protocol, setenv: Callable[[dict[str, str]], None]
) -> None:
    with otlp_receiver(protocol) as receiver:
        setenv({**receiver.environment, "OTEL_BSP_SCHEDULE_DELAY": "60000"})
        target = Tracing.from_environment(service_version="1")
        answered_request(target)
        target.shutdown()
        assert len(receiver.spans) == NUM_SPANS


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_headers_and_service_name_come_from_the_environment(
    protocol: Protocol, setenv: Callable[[dict[str, str]], None]
) -> None:
    with otlp_receiver(protocol) as receiver:
        setenv(
            {
                **receiver.environment,
                "OTEL_EXPORTER_OTLP_HEADERS": "x-team=llm",
                "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
                "OTEL_SERVICE_NAME": "edge",
                "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=lab,service.version=7",
            }
        )
        target = Tracing.from_environment(service_version="1")
        answered_request(target)
        resource = receiver.wait_for_spans(NUM_SPANS)[0].resource
        target.shutdown()
    assert receiver.headers["x-team"] == "llm"
    assert resource["service.name"] == "edge"
    assert resource["service.version"] == "7"
    assert resource["deployment.environment.name"] == "lab"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_two_servers_in_one_process_export_apart(
    protocol: Protocol, monkeypatch: pytest.MonkeyPatch
) -> None:
    with otlp_receiver(protocol) as left, otlp_receiver(protocol) as right:
        targets = []
        for receiver in (left, right):
            for key, value in receiver.environment.items():
                monkeypatch.setenv(key, value)
            targets.append(Tracing.from_environment(service_version="1"))
        traces = [answered_request(target) for target in targets]
        for receiver, trace in zip((left, right), traces, strict=True):
            spans = receiver.wait_for_spans(NUM_SPANS)
            assert {span.trace_id for span in spans} == {trace.trace_id}
        for target in targets:
            target.shutdown()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", ["closed", "black hole"])
def test_a_dead_collector_bounds_shutdown_and_every_span_is_counted(
    protocol: Protocol,
    kind: str,
    setenv: Callable[[dict[str, str]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tracing, "DRAIN_S", 0.2)
    with black_hole() as silent:
        endpoint = closed_port() if kind == "closed" else silent
        setenv(
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
                "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
                "OTEL_BSP_SCHEDULE_DELAY": "10",
            }
        )
        target = Tracing.from_environment(service_version="1")
        for _ in range(10):
            answered_request(target)
            recorded_step(target)
        start = time.monotonic()
        target.shutdown()
        # Ten times the bound: it fails for an exporter that waits out its own 10 s.
        assert time.monotonic() - start < 7
    assert target.num_exported_spans == 0
    assert target.num_dropped_spans == 10 * (NUM_SPANS + 1)


def test_a_full_queue_drops_and_counts_without_blocking(
    setenv: Callable[[dict[str, str]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "DRAIN_S", 0.05)
    with black_hole() as endpoint:
        setenv(
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
                "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
                "OTEL_BSP_MAX_QUEUE_SIZE": "8",
                "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "4",
            }
        )
        target = Tracing.from_environment(service_version="1")
        for _ in range(100):
            answered_request(target)
            recorded_step(target)
        # At most one batch in flight and a full queue are not decided yet.
        assert target.num_dropped_spans >= 100 * (NUM_SPANS + 1) - 8 - 4
        target.shutdown()
    assert target.num_dropped_spans == 100 * (NUM_SPANS + 1)


def test_a_collector_that_never_answers_holds_nobody_up(
    setenv: Callable[[dict[str, str]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "DRAIN_S", 0.05)
    with black_hole() as endpoint:
        setenv(
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
                "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
                "OTEL_BSP_SCHEDULE_DELAY": "1",
                "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "1",
            }
        )
        target = Tracing.from_environment(service_version="1")
        answered_request(target)
        # The exporting thread waits for an answer now: what it holds must not be what a request or
        # a step needs.
        start_s = time.monotonic()
        for _ in range(200):
            answered_request(target)
            recorded_step(target)
        took_s = time.monotonic() - start_s
        target.shutdown()
    # A tenth of a millisecond each; the exporter's own timeout is 10 s.
    assert took_s < 2.0
    assert (target.num_exported_spans, target.num_dropped_spans) == (
        0,
        NUM_SPANS + 200 * (NUM_SPANS + 1),
    )


def test_an_outage_is_one_warning_and_not_a_flood(
    setenv: Callable[[dict[str, str]], None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with refusing_collector() as endpoint:
        setenv(
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
                "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
                "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "1",
            }
        )
        target = Tracing.from_environment(service_version="1")
        for _ in range(5):
            answered_request(target)
            recorded_step(target)
        target.shutdown()
    assert target.num_dropped_spans == 5 * (NUM_SPANS + 1)
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= 30]
    assert len(warnings) == 1
    assert endpoint in warnings[0]
    assert "400" in warnings[0]
