"""What a collector's answer over HTTP means for the counts: taken, or not taken."""

import logging

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from telemetry.metric_export import MetricExport
from telemetry.metrics import Metrics
from telemetry.tracing import Tracing
from tests.otlp_receiver import answering_collector

NUM_SPANS = 3
PROTOBUF = "application/x-protobuf"


def rejecting(num_spans: int, message: str) -> bytes:
    verdict = ExportTracePartialSuccess(rejected_spans=num_spans, error_message=message)
    body: bytes = ExportTraceServiceResponse(partial_success=verdict).SerializeToString()
    return body


def sized(body: bytes, kind: str = PROTOBUF) -> dict[str, str]:
    return {"content-type": kind, "content-length": str(len(body))}


def point_at(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")


def exported_and_dropped(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Of a few spans, sent in one batch."""
    point_at(endpoint, monkeypatch)
    tracing = Tracing.from_environment(service_version="1")
    for _ in range(NUM_SPANS):
        trace = tracing.start_request(method="GET", route="/", headers={}, tenant_hash=None)
        trace.finish(status=200, outcome="ok")
    tracing.shutdown()
    return tracing.num_exported_spans, tracing.num_dropped_spans


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= 30]


def test_a_redirect_takes_nothing_and_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    headers = {"location": "https://elsewhere/v1/traces", **sized(b"")}
    with answering_collector(308, headers=headers) as endpoint:
        assert exported_and_dropped(endpoint, monkeypatch) == (0, NUM_SPANS)
    (warning,) = warnings_of(caplog)
    assert "308 and wants https://elsewhere/v1/traces asked" in warning


def test_rejected_spans_are_dropped_ones(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    body = rejecting(2, "too old")
    with answering_collector(200, body, headers=sized(body)) as endpoint:
        assert exported_and_dropped(endpoint, monkeypatch) == (1, 2)
    (warning,) = warnings_of(caplog)
    assert "it rejected 2: too old" in warning


def test_no_more_are_rejected_than_there_were(monkeypatch: pytest.MonkeyPatch) -> None:
    body = rejecting(10**9, "")
    with answering_collector(200, body, headers=sized(body)) as endpoint:
        assert exported_and_dropped(endpoint, monkeypatch) == (0, NUM_SPANS)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", PROTOBUF),
        (rejecting(0, "mind the gap"), PROTOBUF),
        (b"\xff\xfe garbage", PROTOBUF),
        (b"{}", "application/json"),
        (rejecting(2, ""), "text/plain"),
    ],
)
def test_other_answers_are_a_yes(
    body: bytes, kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with answering_collector(200, body, headers=sized(body, kind)) as endpoint:
        assert exported_and_dropped(endpoint, monkeypatch) == (NUM_SPANS, 0)
    assert warnings_of(caplog) == []


def test_an_answer_without_an_end_is_not_read_to_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with answering_collector(200, headers={"content-type": PROTOBUF}) as endpoint:
        assert exported_and_dropped(endpoint, monkeypatch) == (0, NUM_SPANS)
    (warning,) = warnings_of(caplog)
    assert "more than 16384 bytes" in warning


@pytest.mark.parametrize(("status", "body"), [(308, b""), (200, rejecting(1, "no"))])
def test_metrics_that_were_not_all_taken_are_an_error(
    status: int, body: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    metrics = Metrics()
    with answering_collector(status, body, headers=sized(body)) as endpoint:
        point_at(endpoint, monkeypatch)
        export = MetricExport.from_environment(metrics, service_version="1")
        assert export is not None
        export.start()
        export.close()
    exposed = metrics.render()[0].decode()
    assert 'radixgate_metric_exports_total{outcome="error"} 1.0' in exposed
    assert 'radixgate_metric_exports_total{outcome="ok"} 0.0' in exposed
