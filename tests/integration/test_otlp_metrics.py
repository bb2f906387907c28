"""Metrics reach a real OTLP receiver over both protocols, as /metrics has them, and a bad collector
harms nobody."""

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from runtime.cache_messages import TierUse
from runtime.messages import EngineStats
from telemetry.catalog import TTFT_BUCKETS
from telemetry.metric_export import MetricExport
from telemetry.metrics import BuildInfo, Metrics
from tests.otlp_points import ReceivedMetrics
from tests.otlp_receiver import (
    Protocol,
    black_hole,
    closed_port,
    otlp_receiver,
    refusing_collector,
)

PROTOCOLS: tuple[Protocol, ...] = ("grpc", "http/protobuf")
TRACE = {"trace_id": "0af7651916cd43dd8448eb211c80319c", "span_id": "b7ad6b7169203331"}
CHAT = "/v1/chat/completions"

SetAll = Callable[[dict[str, str]], None]


@pytest.fixture
def setenv(monkeypatch: pytest.MonkeyPatch) -> SetAll:
    def set_all(environment: dict[str, str]) -> None:
        for key, value in environment.items():
            monkeypatch.setenv(key, value)

    return set_all


@contextmanager
def exporting(metrics: Metrics, *, drain_s: float = 3.0) -> Iterator[MetricExport]:
    """Where the environment says."""
    export = MetricExport.from_environment(metrics, service_version="9.9")
    assert export is not None
    export.start()
    try:
        yield export
    finally:
        export.close(drain_s=drain_s)


def served_metrics() -> Metrics:
    """One answered request."""
    metrics = Metrics()
    metrics.request_started()
    metrics.observe_ttft(0.03, operation="chat", exemplar=TRACE)
    metrics.observe_ttft(0.3, operation="chat")
    metrics.request_finished(route=CHAT, outcome="ok", status=200, duration_s=1.0, exemplar=TRACE)
    metrics.request_finished(route="/v1/models", outcome="ok", status=200, duration_s=0.0)
    metrics.set_engine_source(lambda: EngineStats(pages_free=3, steps=7, tiers=(disk(),)))
    metrics.set_build_source(lambda: BuildInfo("9.9", "small", "float32", "cpu"))
    return metrics


def disk() -> TierUse:
    return TierUse("disk", is_up=True, num_pages=1, num_bytes=2, max_bytes=None, num_fetched=5)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_collector_gets_what_the_registry_has(protocol: Protocol, setenv: SetAll) -> None:
    before_ns = time.time_ns()
    metrics = served_metrics()
    with otlp_receiver(protocol) as receiver:
        setenv(receiver.environment)
        with exporting(metrics):
            received = receiver.wait_for_metrics()
    requests = received.one(
        "radixgate.requests", http__route=CHAT, outcome="ok", http__response__status_code=200
    )
    assert (requests.kind, requests.temporality, requests.is_monotonic) == (
        "sum",
        "CUMULATIVE",
        True,
    )
    assert (requests.value, requests.unit) == (1, "{request}")
    assert before_ns < requests.start_ns < requests.at_ns < time.time_ns()
    pages = received.one("radixgate.kv_pages", state="free")
    assert (pages.kind, pages.value, pages.unit) == ("gauge", 3, "{page}")
    build = received.one(
        "radixgate.build_info", version="9.9", model="small", dtype="float32", device="cpu"
    )
    assert build.value == 1
    assert requests.resource["service.name"] == "radixgate"
    assert requests.resource["service.version"] == "9.9"
    assert len(requests.resource["service.instance.id"]) == 36


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_histograms_have_the_conventions_names_and_the_traces_of_examples(
    protocol: Protocol, setenv: SetAll
) -> None:
    with otlp_receiver(protocol) as receiver:
        setenv(receiver.environment)
        with exporting(served_metrics()):
            received = receiver.wait_for_metrics()
    ttft = received.one(
        "gen_ai.server.time_to_first_token",
        gen_ai__operation__name="chat",
        gen_ai__provider__name="radixgate",
    )
    assert (ttft.kind, ttft.temporality, ttft.unit) == ("histogram", "CUMULATIVE", "s")
    assert ttft.bounds == TTFT_BUCKETS
    found = [(ttft.bounds[i], n) for i, n in enumerate(ttft.counts) if n]
    assert (found, ttft.count) == ([(0.04, 1), (0.5, 1)], 2)
    assert len(ttft.counts) == len(ttft.bounds) + 1
    assert ttft.value == pytest.approx(0.33)
    assert ttft.exemplars == ((TRACE["trace_id"], TRACE["span_id"], 0.03),)
    assert not ttft.has_extremes
    operations = {
        point.attributes["http.route"]: point.attributes["gen_ai.operation.name"]
        for point in received.named("gen_ai.server.request.duration")
    }
    assert operations == {CHAT: "chat", "/v1/models": "/v1/models"}


def test_what_a_runtime_counts_begins_with_its_first_report(setenv: SetAll) -> None:
    metrics = served_metrics()

    def two_reports(received: ReceivedMetrics) -> bool:
        return received.one("radixgate.engine_steps").start_ns < received.points[0].at_ns

    with otlp_receiver("http/protobuf") as receiver:
        setenv(receiver.environment)
        with exporting(metrics):
            later = receiver.wait_for_metrics(two_reports)
        first = receiver.metrics[0]
    steps, fetched = "radixgate.engine_steps", "radixgate.cache_tier_pages_fetched"
    for received in (first, later):
        assert received.one(steps).start_ns == first.points[0].at_ns
        assert received.one(fetched, tier="disk").start_ns == first.points[0].at_ns
    assert later.one(steps).value == 7
    prompt = "radixgate.prompt_tokens"
    assert first.one(prompt).start_ns == later.one(prompt).start_ns < first.points[0].at_ns


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_end_sends_what_was_counted_last(protocol: Protocol, setenv: SetAll) -> None:
    metrics = served_metrics()
    with otlp_receiver(protocol) as receiver:
        setenv({**receiver.environment, "OTEL_METRIC_EXPORT_INTERVAL": "60000"})
        with exporting(metrics):
            metrics.rejected("late")
        (received,) = receiver.metrics
    assert received.one("radixgate.rejected", reason="late").value == 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", ["closed", "black hole"])
def test_a_dead_collector_bounds_the_end_and_delays_nobody(
    protocol: Protocol, kind: str, setenv: SetAll
) -> None:
    metrics = served_metrics()
    with black_hole() as silent:
        setenv(
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": closed_port() if kind == "closed" else silent,
                "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
                "OTEL_METRIC_EXPORT_INTERVAL": "1",
            }
        )
        export = MetricExport.from_environment(metrics, service_version="1")
        assert export is not None
        export.start()
        start = time.monotonic()
        for _ in range(100):
            metrics.request_finished(route=CHAT, outcome="ok", status=200, duration_s=0.1)
        assert time.monotonic() - start < 1
        export.close(drain_s=0.2)
        # Ten times the bound: it fails for an exporter that waits out its own 10 s.
        assert time.monotonic() - start < 7
    assert exports(metrics, "ok") == 0


def test_failures_are_counted_and_an_outage_is_told_once(
    setenv: SetAll, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    metrics = served_metrics()
    with refusing_collector() as endpoint:
        setenv(
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
                "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
                "OTEL_METRIC_EXPORT_INTERVAL": "1",
            }
        )
        with exporting(metrics):
            assert counted(lambda: exports(metrics, "error") >= 3)
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= 30]
    assert len(warnings) == 1
    assert warnings[0].startswith(f"metrics cannot be exported to {endpoint}")
    assert "400" in warnings[0]


def test_nothing_is_sent_or_imported_where_no_collector_is_set() -> None:
    code = (
        "import sys\n"
        "from telemetry.metric_export import MetricExport\n"
        "from telemetry.metrics import Metrics\n"
        "assert MetricExport.from_environment(Metrics(), service_version='1') is None\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry.sdk')]\n"
    )
    environment = {"PYTHONPATH": ".", "OTEL_METRICS_EXPORTER": "none"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=20)


def exports(metrics: Metrics, outcome: str) -> float:
    value = metrics.registry.get_sample_value(
        "radixgate_metric_exports_total", {"outcome": outcome}
    )
    return value or 0.0


def counted(is_met: Callable[[], bool], *, timeout_s: float = 10.0) -> bool:
    """Whether it is met in time."""
    waiting, deadline = threading.Event(), time.monotonic() + timeout_s
    while not is_met() and time.monotonic() < deadline:
        waiting.wait(0.005)
    return is_met()
