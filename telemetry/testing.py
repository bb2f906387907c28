"""Tracing for tests: finished spans stay in memory, and faults in telemetry are raised."""

from opentelemetry.sdk.trace import sampling
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from telemetry.setup import make_spans
from telemetry.tracing import Tracing


def in_memory_tracing() -> tuple[Tracing, InMemorySpanExporter]:
    """A Tracing, and the exporter whose get_finished_spans() has what it recorded."""
    exporter = InMemorySpanExporter()
    spans = make_spans(
        SimpleSpanProcessor(exporter),
        sampler=sampling.ParentBased(sampling.ALWAYS_ON),
        service_version="test",
    )
    return Tracing(spans, strict=True), exporter
