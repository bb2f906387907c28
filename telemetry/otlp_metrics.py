"""What a registry of prometheus_client collects, as OTLP: names and units are the catalog's, sums
are cumulative. Imports the SDK; metric_export.py loads this only where a collector is configured.

The SDK makes such data of instruments of its own. There is one set of numbers here, and no second
one that could differ, so the data are made of that.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

from opentelemetry.sdk.metrics import Exemplar
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.samples import Exemplar as FamilyExemplar
from prometheus_client.samples import Sample

from telemetry import names
from telemetry.catalog import BY_NAME
from telemetry.collector_session import Rejected, make_session
from telemetry.errors import SetupError
from telemetry.metric_definition import MetricDefinition
from telemetry.outage import last_words
from telemetry.request_trace import PROVIDER
from telemetry.settings import MetricSettings, without_credentials
from telemetry.setup import make_resource

_NOISY_LOGGERS = (
    "opentelemetry.exporter.otlp.proto.grpc.exporter",
    "opentelemetry.exporter.otlp.proto.http.metric_exporter",
)
# The conventions' operations by route; they allow other words for what is none of theirs.
_OPERATIONS = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "text_completion",
    "/v1/responses": "chat",
    "/v1/embeddings": "embeddings",
}
_NS = 1_000_000_000
_Labels = tuple[tuple[str, str], ...]


def make_sender(
    settings: MetricSettings, registry: CollectorRegistry, *, service_version: str
) -> "OtlpSender":
    """Raises: SetupError when the exporter refuses one of its variables."""
    endpoint = without_credentials(settings.endpoint)
    rejected = Rejected()
    try:
        exporter = _make_exporter(settings, rejected)
    except Exception as error:  # whatever the exporter raises for a bad variable, and it varies
        expected = f"a working exporter ({error})"
        raise SetupError("OTEL_EXPORTER_OTLP_*", endpoint, expected=expected) from error
    return OtlpSender(
        exporter,
        registry,
        resource=make_resource(service_version),
        scope=InstrumentationScope("radixgate", service_version),
        target=f"{endpoint} ({settings.protocol})",
        take_rejected=rejected.take,
    )


class OtlpSender:
    """All metrics in one message. One thread sends."""

    def __init__(
        self,
        exporter: MetricExporter,
        registry: CollectorRegistry,
        *,
        resource: Resource,
        scope: InstrumentationScope,
        target: str,
        clock: Callable[[], int] = time.time_ns,
        take_rejected: Callable[[], int] = int,
    ) -> None:
        """`take_rejected` says how many of the last message's points were not taken."""
        self.target = target
        self._take_rejected = take_rejected
        self._exporter = exporter
        self._registry = registry
        self._resource = resource
        self._scope = scope
        self._clock = clock
        self._starts = StartTimes(clock())
        self._is_stopped = False
        last_words.silence(_NOISY_LOGGERS)

    def send(self) -> bool:
        if self._is_stopped:
            return False
        try:
            is_sent = self._exporter.export(self.data()) is MetricExportResult.SUCCESS
            return not self._take_rejected() and is_sent
        except Exception as error:
            last_words.keep(f"{type(error).__name__}: {error}")
            return False

    def stop(self) -> None:
        if not self._is_stopped:
            self._is_stopped = True
            self._exporter.shutdown()

    def data(self) -> MetricsData:
        """What would be sent now."""
        now_ns = self._clock()
        metrics = [
            metric
            for family in self._registry.collect()
            if (metric := _metric_of(family, starts=self._starts, now_ns=now_ns)) is not None
        ]
        scope = ScopeMetrics(scope=self._scope, metrics=metrics, schema_url="")
        return MetricsData([ResourceMetrics(self._resource, [scope], schema_url="")])


class StartTimes:
    """Since when each series counts. What this process counts began with it. What a runtime counts
    may be older: such a series begins with its first report, as OTLP has it for an unknown start.
    """

    def __init__(self, started_ns: int) -> None:
        self._started_ns = started_ns
        self._first_seen_ns: dict[tuple[str, _Labels], int] = {}

    def of(self, metric: MetricDefinition, labels: _Labels, *, now_ns: int) -> int:
        if not metric.of_runtime:
            return self._started_ns
        return self._first_seen_ns.setdefault((metric.name, labels), now_ns)


def _metric_of(family: Family, *, starts: StartTimes, now_ns: int) -> Metric | None:
    """None where there is no series: a metric without any says nothing."""
    metric = BY_NAME[family.name]
    series = _series(family)
    if not series:
        return None
    data: Sum | Gauge | Histogram
    if metric.kind == "histogram":
        data = Histogram(
            [
                _histogram_point(metric, labels, samples, starts=starts, now_ns=now_ns)
                for labels, samples in series.items()
            ],
            AggregationTemporality.CUMULATIVE,
        )
    else:
        points = [
            NumberDataPoint(
                attributes=_attributes(metric, labels),
                start_time_unix_nano=starts.of(metric, labels, now_ns=now_ns),
                time_unix_nano=now_ns,
                value=float(sample.value),
            )
            for labels, (sample,) in series.items()
        ]
        is_sum = metric.kind == "counter"
        data = Sum(points, AggregationTemporality.CUMULATIVE, True) if is_sum else Gauge(points)
    return Metric(name=metric.otlp_name, description=metric.text, unit=metric.unit, data=data)


def _series(family: Family) -> dict[_Labels, list[Sample]]:
    """Samples by their labels; those of a histogram's buckets belong together."""
    series: dict[_Labels, list[Sample]] = {}
    for sample in family.samples:
        labels = tuple((name, value) for name, value in sample.labels.items() if name != "le")
        series.setdefault(labels, []).append(sample)
    return series


def _histogram_point(
    metric: MetricDefinition,
    labels: _Labels,
    samples: Iterable[Sample],
    *,
    starts: StartTimes,
    now_ns: int,
) -> HistogramDataPoint:
    buckets: list[Sample] = []
    total = 0.0
    for sample in samples:
        if sample.name.endswith("_bucket"):
            buckets.append(sample)
        elif sample.name.endswith("_sum"):
            total = sample.value
    # Prometheus counts up to each bound, OTLP between two of them.
    counts = [round(after - before) for before, after in pairwise([0.0, *_values(buckets)])]
    return HistogramDataPoint(
        attributes=_attributes(metric, labels),
        start_time_unix_nano=starts.of(metric, labels, now_ns=now_ns),
        time_unix_nano=now_ns,
        count=sum(counts),
        sum=total,
        bucket_counts=counts,
        explicit_bounds=metric.buckets,
        # Not known, which the message allows and the class' types do not.
        min=None,  # type: ignore[arg-type]
        max=None,  # type: ignore[arg-type]
        exemplars=list(_exemplars(buckets)),
    )


def _values(samples: Sequence[Sample]) -> list[float]:
    return [sample.value for sample in samples]


def _exemplars(samples: Iterable[Sample]) -> Iterator[Exemplar]:
    for sample in samples:
        if sample.exemplar is not None:
            yield _exemplar(sample.exemplar)


def _exemplar(exemplar: FamilyExemplar) -> Exemplar:
    return Exemplar(
        filtered_attributes={},
        value=exemplar.value,
        time_unix_nano=round(float(exemplar.timestamp or 0.0) * _NS),
        span_id=int(exemplar.labels["span_id"], 16),
        trace_id=int(exemplar.labels["trace_id"], 16),
    )


def _attributes(metric: MetricDefinition, labels: _Labels) -> dict[str, str | int]:
    attribute_names = {label.name: label.attribute_name for label in metric.labels}
    attributes: dict[str, str | int] = {}
    for label, value in labels:
        name = attribute_names[label]
        attributes[name] = int(value) if name == names.HTTP_STATUS else value
        if metric.convention and name == names.HTTP_ROUTE:
            attributes[names.GEN_AI_OPERATION] = _OPERATIONS.get(value, value)
    if metric.convention:
        attributes[names.GEN_AI_PROVIDER] = PROVIDER
    return attributes


def _make_exporter(settings: MetricSettings, rejected: Rejected) -> MetricExporter:
    # Imported here: 0.1 s and 30 MB that only the chosen protocol should cost.
    if settings.protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import (
            OTLPMetricExporter as GrpcExporter,
        )

        return GrpcExporter()
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import (
        OTLPMetricExporter as HttpExporter,
    )

    return HttpExporter(session=make_session(rejected, "METRICS"))
