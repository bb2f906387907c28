"""A Prometheus histogram for what is observed once a token: several equal values cost one.

The library's own costs twice as much for each, and has no way to take many at once.
"""

import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString


class TokenHistogram(Collector):
    """`bounds` are the buckets' upper ends, rising; beyond the last is infinity. Thread-safe."""

    def __init__(self, name: str, documentation: str, *, bounds: Sequence[float]) -> None:
        self._name = name
        self._documentation = documentation
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0
        self._lock = threading.Lock()

    def observe(self, value: float, count: int = 1) -> None:
        """Takes a value so many times. A bucket holds values up to and with its bound."""
        bucket = bisect_left(self._bounds, value)
        with self._lock:
            self._counts[bucket] += count
            self._sum += value * count

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            totals, total = list(accumulate(self._counts)), self._sum
        names = [*map(floatToGoString, self._bounds), "+Inf"]
        yield HistogramMetricFamily(
            self._name,
            self._documentation,
            buckets=list(zip(names, totals, strict=True)),
            sum_value=total,
        )
