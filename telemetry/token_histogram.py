"""A Prometheus histogram for what is observed once a token: several equal values cost one.

The library's own costs twice as much for each, and has no way to take many at once.
"""

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar
from prometheus_client.utils import floatToGoString

from telemetry.metric_definition import MetricDefinition


class TokenHistogram(Collector):
    """The buckets of the metric are their upper ends, rising; beyond the last is infinity.
    Thread-safe."""

    def __init__(self, metric: MetricDefinition, *, clock: Callable[[], float] = time.time) -> None:
        self._metric = metric
        self._bounds = metric.buckets
        self._counts = [0] * (len(self._bounds) + 1)
        self._exemplars: list[Exemplar | None] = [None] * len(self._counts)
        self._sum = 0.0
        self._clock = clock
        self._lock = threading.Lock()

    def observe(
        self, value: float, count: int = 1, *, exemplar: dict[str, str] | None = None
    ) -> None:
        """Takes a value so many times. A bucket holds values up to and with its bound, and the
        labels of the last exemplar among them."""
        bucket = bisect_left(self._bounds, value)
        with self._lock:
            self._counts[bucket] += count
            self._sum += value * count
            if exemplar is not None:
                self._exemplars[bucket] = Exemplar(exemplar, value, self._clock())

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            totals, total = list(accumulate(self._counts)), self._sum
            exemplars = list(self._exemplars)
        names = [*map(floatToGoString, self._bounds), "+Inf"]
        yield HistogramMetricFamily(
            self._metric.name,
            self._metric.text,
            # Where a bucket has no exemplar None is what the library takes, and its types do not.
            buckets=list(zip(names, totals, exemplars, strict=True)),  # type: ignore[arg-type]
            sum_value=total,
            unit=self._metric.prometheus_unit,
        )
