"""OTLP receivers of our own, on port 0: what arrived at them is what a collector would get."""

import gzip
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

import grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import (
    MetricsServiceServicer,
    add_MetricsServiceServicer_to_server,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.otlp_points import ReceivedMetrics, received_metrics

Protocol = Literal["grpc", "http/protobuf"]


@dataclass(frozen=True, slots=True)
class ReceivedSpan:
    """One span as it arrived; ids are hexadecimal, `parent_id` "" for a root. `links` are pairs of
    a trace's and a span's."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    status: str
    status_message: str
    attributes: dict[str, Any]
    events: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    resource: dict[str, Any]


class OtlpReceiver:
    """What one receiver got. `environment` points an exporter at it."""

    def __init__(self, protocol: Protocol) -> None:
        self.protocol = protocol
        self.endpoint = ""
        self.headers: dict[str, str] = {}
        self._spans: list[ReceivedSpan] = []
        self._metrics: list[ReceivedMetrics] = []
        self._changed = threading.Condition()

    @property
    def environment(self) -> dict[str, str]:
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": self.protocol,
            "OTEL_BSP_SCHEDULE_DELAY": "50",
            "OTEL_METRIC_EXPORT_INTERVAL": "50",
        }

    @property
    def spans(self) -> list[ReceivedSpan]:
        with self._changed:
            return list(self._spans)

    def wait_for_spans(
        self, wanted: int | Callable[[Sequence[ReceivedSpan]], bool], *, timeout_s: float = 10.0
    ) -> list[ReceivedSpan]:
        """All spans once `wanted` (a number, or a predicate over them) is met.

        Raises: AssertionError naming what did arrive in time.
        """

        def is_met() -> bool:
            if callable(wanted):
                return wanted(self._spans)
            return len(self._spans) >= wanted

        with self._changed:
            is_in_time = self._changed.wait_for(is_met, timeout_s)
            assert is_in_time, f"only these spans arrived: {[span.name for span in self._spans]}"
            return list(self._spans)

    @property
    def metrics(self) -> list[ReceivedMetrics]:
        with self._changed:
            return list(self._metrics)

    def wait_for_metrics(
        self,
        is_wanted: Callable[[ReceivedMetrics], bool] = lambda _: True,
        *,
        timeout_s: float = 10.0,
    ) -> ReceivedMetrics:
        """The latest message, once it is wanted. Raises: AssertionError."""
        with self._changed:
            is_in_time = self._changed.wait_for(
                lambda: bool(self._metrics) and is_wanted(self._metrics[-1]), timeout_s
            )
            assert is_in_time, f"none of {len(self._metrics)} messages was wanted"
            return self._metrics[-1]

    def receive_metrics(self, request: ExportMetricsServiceRequest) -> None:
        with self._changed:
            self._metrics.append(received_metrics(request))
            self._changed.notify_all()

    def receive(self, request: ExportTraceServiceRequest, headers: dict[str, str]) -> None:
        received = [
            _received(span, resource=_attributes(group.resource.attributes))
            for group in request.resource_spans
            for scope in group.scope_spans
            for span in scope.spans
        ]
        with self._changed:
            self.headers = headers
            self._spans.extend(received)
            self._changed.notify_all()


@contextmanager
def otlp_receiver(protocol: Protocol) -> Iterator[OtlpReceiver]:
    """A receiver of either kind."""
    start = _grpc_receiver if protocol == "grpc" else _http_receiver
    with start() as receiver:
        yield receiver


@contextmanager
def black_hole() -> Iterator[str]:
    """The endpoint of a collector that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def refusing_collector() -> Iterator[str]:
    """The endpoint of an HTTP collector that answers 400 to everything."""

    class Refuse(_Handler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.answer(400, b"")

    with _http_server(Refuse) as endpoint:
        yield endpoint


@contextmanager
def answering_collector(
    status: int, body: bytes = b"", *, headers: Mapping[str, str] | None = None
) -> Iterator[str]:
    """The endpoint of an HTTP collector that answers this to everything and keeps nothing. Without
    a content-length among the headers the body has no end."""

    class Answer(_Handler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(status)
            for key, value in (headers or {}).items():
                self.send_header(key, value)
            self.end_headers()
            try:
                self.wfile.write(body)
                while "content-length" not in (headers or {}):
                    self.wfile.write(bytes(4096))
            except OSError:
                pass  # it was not read on

    with _http_server(Answer) as endpoint:
        yield endpoint


def closed_port() -> str:
    """An endpoint at which nothing listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{unused.getsockname()[1]}"


@contextmanager
def _grpc_receiver() -> Iterator[OtlpReceiver]:
    receiver = OtlpReceiver("grpc")

    class Service(TraceServiceServicer):
        def Export(
            self, request: ExportTraceServiceRequest, context: grpc.ServicerContext
        ) -> ExportTraceServiceResponse:
            metadata = {str(key): str(value) for key, value in context.invocation_metadata()}
            receiver.receive(request, metadata)
            return ExportTraceServiceResponse()

    class Metrics(MetricsServiceServicer):
        def Export(
            self,
            request: ExportMetricsServiceRequest,
            context: grpc.ServicerContext,  # noqa: ARG002
        ) -> ExportMetricsServiceResponse:
            receiver.receive_metrics(request)
            return ExportMetricsServiceResponse()

    server = grpc.server(ThreadPoolExecutor(max_workers=2))
    add_TraceServiceServicer_to_server(Service(), server)  # type: ignore[no-untyped-call]
    add_MetricsServiceServicer_to_server(Metrics(), server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    receiver.endpoint = f"http://127.0.0.1:{port}"
    server.start()
    try:
        yield receiver
    finally:
        server.stop(grace=None).wait(5)


@contextmanager
def _http_receiver() -> Iterator[OtlpReceiver]:
    receiver = OtlpReceiver("http/protobuf")

    class Receive(_Handler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            if self.path == "/v1/metrics":
                receiver.receive_metrics(ExportMetricsServiceRequest.FromString(body))
                self.answer(200, ExportMetricsServiceResponse().SerializeToString())
                return
            if self.path != "/v1/traces":
                self.answer(404, b"")
                return
            headers = {key.lower(): value for key, value in self.headers.items()}
            receiver.receive(ExportTraceServiceRequest.FromString(body), headers)
            self.answer(200, ExportTraceServiceResponse().SerializeToString())

    with _http_server(Receive) as endpoint:
        receiver.endpoint = endpoint
        yield receiver


class _Handler(BaseHTTPRequestHandler):
    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@contextmanager
def _http_server(handler: type[_Handler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    # A kept-alive connection of an exporter must not hold up the end of a test.
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def _received(span: Span, *, resource: dict[str, Any]) -> ReceivedSpan:
    return ReceivedSpan(
        name=span.name,
        kind=Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        status=Status.StatusCode.Name(span.status.code).removeprefix("STATUS_CODE_"),
        status_message=span.status.message,
        attributes=_attributes(span.attributes),
        events=tuple(event.name for event in span.events),
        links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        resource=resource,
    )


def _attributes(pairs: Sequence[KeyValue]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return tuple(_value(item) for item in value.array_value.values)
    return None if kind is None else getattr(value, kind)
