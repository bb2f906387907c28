"""Samplers and resources of a server's own provider."""

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider, sampling
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from telemetry.settings import MAX_CONTENT_LEN, BatchSettings, ExportSettings, SamplerName
from telemetry.setup import make_export, make_sampler, make_spans


def settings(sampler: SamplerName, ratio: float = 1.0) -> ExportSettings:
    return ExportSettings("http://user:secret@c:1", "grpc", sampler, ratio, BatchSettings())


@pytest.mark.parametrize(
    ("sampler", "description"),
    [
        ("always_on", "AlwaysOnSampler"),
        ("always_off", "AlwaysOffSampler"),
        ("traceidratio", "TraceIdRatioBased{0.25}"),
        ("parentbased_always_on", "ParentBased{root:AlwaysOnSampler"),
        ("parentbased_always_off", "ParentBased{root:AlwaysOffSampler"),
        ("parentbased_traceidratio", "ParentBased{root:TraceIdRatioBased{0.25}"),
    ],
)
def test_each_sampler_name_is_its_sampler(sampler: SamplerName, description: str) -> None:
    assert make_sampler(settings(sampler, 0.25)).get_description().startswith(description)


def finished_span(monkeypatch: pytest.MonkeyPatch, **environment: str) -> dict[str, object]:
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    exporter = InMemorySpanExporter()
    spans = make_spans(
        SimpleSpanProcessor(exporter), sampler=sampling.ALWAYS_ON, service_version="1.2"
    )
    draft = spans.start("s", parent=None, attributes={"long": "x" * 100_000}, start_ns=1)
    spans.end([draft])
    (span,) = exporter.get_finished_spans()
    return {**span.resource.attributes, **(span.attributes or {})}


def test_the_service_is_named_radixgate_and_values_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = finished_span(monkeypatch)
    assert (found["service.name"], found["service.version"]) == ("radixgate", "1.2")
    assert found["long"] == "x" * MAX_CONTENT_LEN


def test_the_environment_names_the_service_and_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    found = finished_span(
        monkeypatch, OTEL_SERVICE_NAME="edge", OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT="10"
    )
    assert (found["service.name"], found["long"]) == ("edge", "x" * 10)


def test_the_global_provider_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    finished_span(monkeypatch)
    assert not isinstance(trace.get_tracer_provider(), TracerProvider)


def test_a_credential_in_the_endpoint_is_never_logged() -> None:
    export = make_export(settings("always_on"))
    export.close(drain_s=1.0)
    assert export.target == "http://c:1 (grpc)"
