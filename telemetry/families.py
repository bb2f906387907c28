"""prometheus_client's objects, made of the catalog's definitions."""

import itertools
from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics import MetricWrapperBase

from telemetry.metric_definition import MetricDefinition


def make_counter(metric: MetricDefinition, registry: CollectorRegistry) -> Counter:
    """Where all values of its labels are known it has a sample for each from the start: the first
    event is an increase then, which a rate shows."""
    counter = Counter(metric.name, metric.text, metric.label_names, registry=registry)
    _make_samples(metric, counter)
    return counter


def make_gauge(metric: MetricDefinition, registry: CollectorRegistry) -> Gauge:
    return Gauge(
        metric.name,
        metric.text,
        metric.label_names,
        unit=metric.prometheus_unit,
        registry=registry,
    )


def make_histogram(metric: MetricDefinition, registry: CollectorRegistry) -> Histogram:
    """With samples from the start as a counter."""
    histogram = Histogram(
        metric.name,
        metric.text,
        metric.label_names,
        unit=metric.prometheus_unit,
        buckets=metric.buckets,
        registry=registry,
    )
    _make_samples(metric, histogram)
    return histogram


def family_of(
    metric: MetricDefinition, values: Mapping[tuple[str, ...], float]
) -> CounterMetricFamily | GaugeMetricFamily:
    """What a collector yields: a sample for each tuple of labels' values."""
    make = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = make(metric.name, metric.text, labels=metric.label_names, unit=metric.prometheus_unit)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def _make_samples(metric: MetricDefinition, wrapper: MetricWrapperBase) -> None:
    if metric.labels and all(label.values for label in metric.labels):
        for values in itertools.product(*(label.values for label in metric.labels)):
            wrapper.labels(*values)
