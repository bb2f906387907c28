"""Prometheus families made from an engine's own gauges and counters, read at each scrape.

Engine counters start at zero with each incarnation. Here they never go back: a restart adds to
what was seen before, so that they can be summed against usage. What an incarnation counted
between the last scrape and its death is lost. While the engine is down its gauges are absent.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from telemetry import catalog
from telemetry.families import family_of
from telemetry.metric_definition import MetricDefinition
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

_COUNTERS: tuple[tuple[MetricDefinition, Callable[[EngineStatsLike], int]], ...] = (
    (catalog.COMPUTED_TOKENS, lambda stats: stats.computed_prompt_tokens),
    (catalog.RECOMPUTED_TOKENS, lambda stats: stats.recomputed_tokens),
    (catalog.PREEMPTIONS, lambda stats: stats.preemptions),
    (catalog.FAIR_PREEMPTIONS, lambda stats: stats.fair_preemptions),
    (catalog.EVICTED_PAGES, lambda stats: stats.evicted_pages),
    (catalog.ENGINE_STEPS, lambda stats: stats.steps),
)
_GAUGES: tuple[tuple[MetricDefinition, Callable[[EngineStatsLike], int]], ...] = (
    (catalog.WAITING, lambda stats: stats.num_waiting),
    (catalog.RUNNING, lambda stats: stats.num_running),
    (catalog.KV_PAGES_LOCKED, lambda stats: stats.pages_locked),
    (catalog.KV_PAGES_PINNED, lambda stats: stats.pages_pinned),
    (catalog.KV_PAGES_CAPACITY, lambda stats: stats.pages_total),
)


class EngineCollector(Collector):
    """One engine. Any thread may collect; `read` is called by one at a time."""

    def __init__(self, read: ReadStats) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._last = dict.fromkeys((metric.name for metric, _ in _COUNTERS), 0)
        self._totals = dict(self._last)
        self._tiers = TierMetrics()

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            # Read here: an older reading that is taken in after a newer one looks like a restart.
            stats = self._read()
            if stats is not None:
                self._advance(stats)
            totals = dict(self._totals)
            tiers = list(self._tiers.counters())
        yield family_of(catalog.ENGINE_UP, {(): float(stats is not None)})
        if stats is not None:
            yield from _gauges(stats)
        for metric, _ in _COUNTERS:
            yield family_of(metric, {(): totals[metric.name]})
        yield from tiers

    def describe(self) -> Iterator[Metric]:
        """Nothing is read when the collector is registered."""
        return iter(())

    def _advance(self, stats: EngineStatsLike) -> None:
        for metric, get in _COUNTERS:
            value = get(stats)
            last = self._last[metric.name]
            # Less than before: a new incarnation counted all of it.
            self._totals[metric.name] += value - last if value >= last else value
            self._last[metric.name] = value
        self._tiers.advance(stats.tiers)


def _gauges(stats: EngineStatsLike) -> Iterator[Metric]:
    for metric, get in _GAUGES:
        yield family_of(metric, {(): get(stats)})
    pages = {"free": stats.pages_free, "cached": stats.pages_cached, "held": stats.pages_held}
    yield family_of(catalog.KV_PAGES, {(state,): value for state, value in pages.items()})
    yield from tier_gauges(stats.tiers)
