"""Points of metrics as a collector gets them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
)


@dataclass(frozen=True, slots=True)
class ReceivedPoint:
    """One point. `value` of a histogram is its sum, `counts` those of its buckets; exemplars are
    (trace id, span id, value), ids hexadecimal."""

    name: str
    unit: str
    kind: str
    temporality: str
    is_monotonic: bool
    attributes: dict[str, Any]
    start_ns: int
    at_ns: int
    value: float
    resource: dict[str, Any]
    count: int = 0
    counts: tuple[int, ...] = ()
    bounds: tuple[float, ...] = ()
    exemplars: tuple[tuple[str, str, float], ...] = ()
    has_extremes: bool = False


@dataclass(frozen=True, slots=True)
class ReceivedMetrics:
    """One message."""

    points: tuple[ReceivedPoint, ...]

    def named(self, name: str) -> list[ReceivedPoint]:
        return [point for point in self.points if point.name == name]

    def one(self, name: str, **attributes: object) -> ReceivedPoint:
        """The point with exactly these attributes, their dots as double underscores."""
        wanted = {key.replace("__", "."): value for key, value in attributes.items()}
        (point,) = [point for point in self.named(name) if point.attributes == wanted]
        return point


def received_metrics(request: ExportMetricsServiceRequest) -> ReceivedMetrics:
    return ReceivedMetrics(
        tuple(
            point
            for group in request.resource_metrics
            for scope in group.scope_metrics
            for metric in scope.metrics
            for point in _points(metric, _attributes(group.resource.attributes))
        )
    )


def _points(metric: Metric, resource: dict[str, Any]) -> Iterator[ReceivedPoint]:
    kind = metric.WhichOneof("data")
    assert kind is not None
    data = getattr(metric, kind)
    temporality = getattr(data, "aggregation_temporality", 0)
    for point in data.data_points:
        yield ReceivedPoint(
            name=metric.name,
            unit=metric.unit,
            kind=kind,
            temporality=AggregationTemporality.Name(temporality).removeprefix(
                "AGGREGATION_TEMPORALITY_"
            ),
            is_monotonic=getattr(data, "is_monotonic", False),
            attributes=_attributes(point.attributes),
            start_ns=point.start_time_unix_nano,
            at_ns=point.time_unix_nano,
            resource=resource,
            exemplars=tuple(
                (one.trace_id.hex(), one.span_id.hex(), one.as_double) for one in point.exemplars
            ),
            **_values(point),
        )


def _values(point: NumberDataPoint | HistogramDataPoint) -> dict[str, Any]:
    if isinstance(point, NumberDataPoint):
        return {"value": point.as_double}
    return {
        "value": point.sum,
        "count": point.count,
        "counts": tuple(point.bucket_counts),
        "bounds": tuple(point.explicit_bounds),
        "has_extremes": point.HasField("min") or point.HasField("max"),
    }


def _attributes(pairs: Sequence[KeyValue]) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "") for pair in pairs}
