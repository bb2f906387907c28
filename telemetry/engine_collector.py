"""Prometheus families made from an engine's own gauges and counters, read at each scrape.

Engine counters start at zero with each incarnation. Here they never go back: a restart adds to
what was seen before, so that they can be summed against usage. What an incarnation counted
between the last scrape and its death is lost. While the engine is down its gauges are absent.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from telemetry import names
from telemetry.tier_metrics import TierMetrics, TierUseLike, tier_gauges


class EngineStatsLike(Protocol):
    """Gauges and counters of one runtime; `runtime.messages.EngineStats` is one."""

    @property
    def num_waiting(self) -> int: ...
    @property
    def num_running(self) -> int: ...
    @property
    def pages_free(self) -> int: ...
    @property
    def pages_cached(self) -> int: ...
    @property
    def pages_locked(self) -> int: ...
    @property
    def pages_held(self) -> int: ...
    @property
    def pages_total(self) -> int: ...
    @property
    def pages_pinned(self) -> int: ...
    @property
    def tiers(self) -> Sequence[TierUseLike]: ...
    @property
    def computed_prompt_tokens(self) -> int: ...
    @property
    def recomputed_tokens(self) -> int: ...
    @property
    def preemptions(self) -> int: ...
    @property
    def fair_preemptions(self) -> int: ...
    @property
    def evicted_pages(self) -> int: ...
    @property
    def steps(self) -> int: ...


ReadStats = Callable[[], EngineStatsLike | None]

_COUNTERS: tuple[tuple[str, str, Callable[[EngineStatsLike], int]], ...] = (
    (
        names.METRIC_COMPUTED_TOKENS,
        "Prompt tokens that were computed rather than found in the cache.",
        lambda stats: stats.computed_prompt_tokens,
    ),
    (
        names.METRIC_RECOMPUTED_TOKENS,
        "Tokens computed again after a preemption.",
        lambda stats: stats.recomputed_tokens,
    ),
    (
        names.METRIC_PREEMPTIONS,
        "Running requests that gave their pages to another and were started again.",
        lambda stats: stats.preemptions,
    ),
    (
        names.METRIC_FAIR_PREEMPTIONS,
        "Running requests of a key that had many, started again after one of another key.",
        lambda stats: stats.fair_preemptions,
    ),
    (
        names.METRIC_EVICTED_PAGES,
        "Cached pages given up for new ones.",
        lambda stats: stats.evicted_pages,
    ),
    (names.METRIC_ENGINE_STEPS, "Forward passes of the engine.", lambda stats: stats.steps),
)


class EngineCollector(Collector):
    """One engine. Scrapes may come from several threads."""

    def __init__(self, read: ReadStats) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._last = dict.fromkeys((name for name, _, _ in _COUNTERS), 0)
        self._totals = dict(self._last)
        self._tiers = TierMetrics()

    def collect(self) -> Iterator[Metric]:
        stats = self._read()
        yield GaugeMetricFamily(
            names.METRIC_ENGINE_UP,
            "1 while the engine takes requests.",
            value=float(stats is not None),
        )
        if stats is not None:
            self._advance(stats)
            yield from _gauges(stats)
        for name, text, _ in _COUNTERS:
            yield CounterMetricFamily(name, text, value=self._totals[name])
        with self._lock:
            tiers = list(self._tiers.counters())
        yield from tiers

    def describe(self) -> Iterator[Metric]:
        """Nothing is read when the collector is registered."""
        return iter(())

    def _advance(self, stats: EngineStatsLike) -> None:
        with self._lock:
            for name, _, get in _COUNTERS:
                value = get(stats)
                last = self._last[name]
                # Less than before: a new incarnation counted all of it.
                self._totals[name] += value - last if value >= last else value
                self._last[name] = value
            self._tiers.advance(stats.tiers)


def _gauges(stats: EngineStatsLike) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        names.METRIC_WAITING, "Requests in the engine's queue.", value=stats.num_waiting
    )
    yield GaugeMetricFamily(
        names.METRIC_RUNNING, "Requests in the engine's batch.", value=stats.num_running
    )
    pages = GaugeMetricFamily(
        names.METRIC_KV_PAGES,
        "KV pages by state: free, cached (in the tree), held (by one running request).",
        labels=["state"],
    )
    pages.add_metric(["free"], stats.pages_free)
    pages.add_metric(["cached"], stats.pages_cached)
    pages.add_metric(["held"], stats.pages_held)
    yield pages
    yield GaugeMetricFamily(
        names.METRIC_KV_PAGES_LOCKED,
        "Cached pages that running requests use and that cannot be evicted.",
        value=stats.pages_locked,
    )
    yield GaugeMetricFamily(
        names.METRIC_KV_PAGES_PINNED,
        "Cached pages that clients have asked to keep, the last to be evicted.",
        value=stats.pages_pinned,
    )
    yield GaugeMetricFamily(
        names.METRIC_KV_PAGES_CAPACITY, "KV pages in the pool.", value=stats.pages_total
    )
    yield from tier_gauges(stats.tiers)
