"""Builds the sampler, the resource and the OTLP exporter of one Tracing. Imports the SDK.

Nothing is made global: several servers fit in one process.
"""

import os

from opentelemetry.sdk.environment_variables import OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT
from opentelemetry.sdk.resources import (
    OTELResourceDetector,
    Resource,
    ServiceInstanceIdResourceDetector,
)
from opentelemetry.sdk.trace import SpanLimits, SpanProcessor, sampling
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from telemetry.collector_session import Rejected, make_session
from telemetry.errors import SetupError
from telemetry.export import BoundedExport
from telemetry.recorded_spans import RecordedSpans
from telemetry.settings import MAX_CONTENT_LEN, ExportSettings, without_credentials

SERVICE_NAME = "radixgate"


def make_export(settings: ExportSettings) -> BoundedExport:
    """Starts the exporting thread; nothing is sent before the first span ends.

    Raises: SetupError when the exporter refuses one of its variables.
    """
    rejected = Rejected()
    try:
        exporter = _make_exporter(settings, rejected)
    except Exception as error:  # whatever the exporter raises for a bad variable, and it varies
        raise SetupError(
            "OTEL_EXPORTER_OTLP_*",
            without_credentials(settings.endpoint),
            expected=f"a working exporter ({error})",
        ) from error
    target = f"{without_credentials(settings.endpoint)} ({settings.protocol})"
    return BoundedExport(
        exporter, settings=settings.batch, target=target, take_rejected=rejected.take
    )


def make_spans(
    processor: SpanProcessor, *, sampler: sampling.Sampler, service_version: str
) -> RecordedSpans:
    """Spans that go to the processor."""
    return RecordedSpans(
        processor,
        sampler=sampler,
        resource=make_resource(service_version),
        scope=InstrumentationScope("radixgate", service_version),
        limits=_span_limits(),
    )


def make_sampler(settings: ExportSettings) -> sampling.Sampler:
    """The sampler that OTEL_TRACES_SAMPLER names."""
    ratio = sampling.TraceIdRatioBased(settings.sampler_ratio)
    match settings.sampler:
        case "always_on":
            return sampling.ALWAYS_ON
        case "always_off":
            return sampling.ALWAYS_OFF
        case "traceidratio":
            return ratio
        case "parentbased_always_on":
            return sampling.ParentBased(sampling.ALWAYS_ON)
        case "parentbased_always_off":
            return sampling.ParentBased(sampling.ALWAYS_OFF)
        case "parentbased_traceidratio":
            return sampling.ParentBased(ratio)


def _make_exporter(settings: ExportSettings, rejected: Rejected) -> SpanExporter:
    # Imported here: 0.1 s and 30 MB that only the chosen protocol should cost.
    if settings.protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (
            OTLPSpanExporter as GrpcExporter,
        )

        return GrpcExporter()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (
        OTLPSpanExporter as HttpExporter,
    )

    return HttpExporter(session=make_session(rejected, "TRACES"))


def make_resource(service_version: str) -> Resource:
    """What sends telemetry. Its instance is this process: metrics of two gateways stay apart."""
    configured = OTELResourceDetector().detect().attributes
    usual = {
        "service.name": SERVICE_NAME,
        "service.version": service_version,
        **ServiceInstanceIdResourceDetector().detect().attributes,
    }
    return Resource.create({**usual, **configured})


def _span_limits() -> SpanLimits:
    # The specification's default length is unlimited.
    if OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT in os.environ:
        return SpanLimits()
    return SpanLimits(max_attribute_length=MAX_CONTENT_LEN)
