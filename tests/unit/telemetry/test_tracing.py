"""Context in and out, and what from_environment makes of the environment."""

import re
import subprocess
import sys

import pytest

from telemetry.errors import SetupError
from telemetry.request_trace import RequestTrace
from telemetry.span_source import SpanDraft
from telemetry.testing import in_memory_tracing
from telemetry.tracing import Tracing

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
SPAN_ID = "b7ad6b7169203331"


def traceparent(flags: str) -> str:
    return f"00-{TRACE_ID}-{SPAN_ID}-{flags}"


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(key, raising=False)


def start(tracing: Tracing, headers: dict[str, str]) -> RequestTrace:
    return tracing.start_request(method="POST", route="/x", headers=headers, tenant_hash=None)


@pytest.fixture(params=["recording", "without a collector"])
def tracing(request: pytest.FixtureRequest) -> Tracing:
    if request.param == "recording":
        return in_memory_tracing()[0]
    return Tracing.from_environment(service_version="1")


@pytest.mark.parametrize("flags", ["00", "01"])
def test_the_callers_trace_continues_with_a_span_of_ours(tracing: Tracing, flags: str) -> None:
    trace = start(tracing, {"Traceparent": traceparent(flags), "tracestate": "a=1,b=2"})
    version, trace_id, span_id, sent_flags = trace.traceparent.split("-")
    assert (version, trace_id, sent_flags) == ("00", TRACE_ID, flags)
    assert span_id != SPAN_ID
    assert trace.trace_id == TRACE_ID
    assert trace.tracestate == "a=1,b=2"


@pytest.mark.parametrize("header", ["", "nonsense", f"00-{'0' * 32}-{SPAN_ID}-01"])
def test_a_malformed_header_starts_a_new_trace(tracing: Tracing, header: str) -> None:
    trace = start(tracing, {"traceparent": header})
    assert trace.trace_id not in (TRACE_ID, "0" * 32)
    assert len(trace.trace_id) == 32


def test_two_requests_never_share_a_trace(tracing: Tracing) -> None:
    first, second = start(tracing, {}), start(tracing, {})
    assert first.trace_id != second.trace_id
    assert first.traceparent.split("-")[2] != second.traceparent.split("-")[2]


def test_an_unsampled_caller_gets_no_recorded_spans() -> None:
    tracing, spans = in_memory_tracing()
    trace = start(tracing, {"traceparent": traceparent("00")})
    trace.describe(operation="chat", model="m", attributes={})
    trace.finish(status=200, outcome="ok")
    assert not trace.is_recording
    assert spans.get_finished_spans() == ()


def test_a_recorded_servers_span_has_the_callers_span_as_parent() -> None:
    tracing, spans = in_memory_tracing()
    start(tracing, {"traceparent": traceparent("01")}).finish(status=200, outcome="ok")
    (server,) = spans.get_finished_spans()
    assert server.parent is not None
    assert f"{server.parent.span_id:016x}" == SPAN_ID


def test_without_a_collector_all_calls_are_safe_and_nothing_is_counted() -> None:
    tracing = Tracing.from_environment(service_version="1")
    trace = start(tracing, {})
    trace.describe(operation="chat", model="m", attributes={})
    trace.first_token(1)
    trace.finish(status=200, outcome="ok")
    tracing.shutdown()
    assert (tracing.num_exported_spans, tracing.num_dropped_spans) == (0, 0)


def test_a_trace_that_starts_without_a_collector_is_not_sampled() -> None:
    trace = start(Tracing.from_environment(service_version="1"), {})
    assert trace.traceparent.endswith("-00")


def test_callers_are_not_followed_when_the_propagators_leave_tracecontext_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_PROPAGATORS", "none")
    tracing = Tracing.from_environment(service_version="1")
    assert start(tracing, {"traceparent": traceparent("01")}).trace_id != TRACE_ID


def test_a_variable_the_exporter_refuses_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "zip")
    with pytest.raises(SetupError) as caught:
        Tracing.from_environment(service_version="1")
    assert "zip" in str(caught.value)
    assert "\n" not in str(caught.value)


class BrokenSpans:
    """An SDK with a fault."""

    def start(self, *_args: object, **_options: object) -> SpanDraft:
        raise RuntimeError("the SDK's fault")

    def end(self, *_args: object) -> None:
        raise RuntimeError("the SDK's fault")


def test_a_fault_of_the_sdk_costs_the_trace_and_not_the_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    trace = start(Tracing(BrokenSpans()), {"traceparent": traceparent("01")})
    trace.describe(operation="chat", model="m", attributes={})
    trace.finish(status=200, outcome="ok")
    assert not trace.is_recording
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-00", trace.traceparent)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "the SDK's fault" in caplog.text


def test_a_fault_of_the_sdk_is_raised_under_test() -> None:
    with pytest.raises(RuntimeError, match="the SDK's fault"):
        start(Tracing(BrokenSpans(), strict=True), {})


def test_neither_the_sdk_nor_grpc_is_imported_without_a_collector() -> None:
    script = (
        "import sys\n"
        "from telemetry.tracing import Tracing\n"
        "Tracing.from_environment(service_version='1').shutdown()\n"
        "print([m for m in ('opentelemetry.sdk', 'grpc', 'requests') if m in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=15
    )
    assert done.stdout.strip() == "[]"
