"""Prometheus families of the prefix cache's lower tiers. Used by EngineCollector, under its lock.

Their counters start at zero with each incarnation of the engine; here they never go back.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from prometheus_client.metrics_core import Metric

from telemetry import catalog
from telemetry.families import family_of
from telemetry.metric_definition import MetricDefinition


class TierUseLike(Protocol):
    """Figures of one tier; `runtime.cache_messages.TierUse` is one."""

    @property
    def name(self) -> str: ...
    @property
    def is_up(self) -> bool: ...
    @property
    def num_pages(self) -> int: ...
    @property
    def num_bytes(self) -> int: ...
    @property
    def max_bytes(self) -> int | None: ...
    @property
    def num_found(self) -> int: ...
    @property
    def num_missing(self) -> int: ...
    @property
    def num_fetched(self) -> int: ...
    @property
    def num_stored(self) -> int: ...
    @property
    def fetched_bytes(self) -> int: ...
    @property
    def stored_bytes(self) -> int: ...
    @property
    def num_declined(self) -> int: ...
    @property
    def num_failures(self) -> int: ...
    @property
    def num_openings(self) -> int: ...
    @property
    def num_rejected(self) -> Mapping[str, int]: ...
    @property
    def num_dropped(self) -> Mapping[str, int]: ...


Labels = tuple[str, ...]

_COUNTERS = (
    catalog.TIER_LOOKUPS,
    catalog.TIER_PAGES_FETCHED,
    catalog.TIER_PAGES_STORED,
    catalog.TIER_BYTES_FETCHED,
    catalog.TIER_BYTES_STORED,
    catalog.TIER_DECLINED,
    catalog.TIER_FAILURES,
    catalog.TIER_OPENINGS,
    catalog.TIER_REJECTED,
    catalog.TIER_DROPPED,
)


class TierMetrics:
    """Not to be called by two threads at once."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, Labels], int] = {}
        self._totals: dict[tuple[str, Labels], int] = {}

    def advance(self, tiers: Sequence[TierUseLike]) -> None:
        """Takes the engine's latest figures in."""
        for tier in tiers:
            for metric, labels, value in _values(tier):
                key = metric.name, labels
                last = self._last.get(key, 0)
                # Less than before: a new incarnation counted all of it.
                added = value - last if value >= last else value
                self._totals[key] = self._totals.get(key, 0) + added
                self._last[key] = value

    def counters(self) -> Iterator[Metric]:
        """All of them, without a sample where there never was a tier."""
        for metric in _COUNTERS:
            yield family_of(
                metric,
                {
                    labels: total
                    for (name, labels), total in self._totals.items()
                    if name == metric.name
                },
            )


def tier_gauges(tiers: Sequence[TierUseLike]) -> Iterator[Metric]:
    """What the tiers hold, and whether they are asked."""
    yield family_of(catalog.TIER_UP, {(tier.name,): float(tier.is_up) for tier in tiers})
    yield family_of(catalog.TIER_PAGES, {(tier.name,): tier.num_pages for tier in tiers})
    yield family_of(catalog.TIER_BYTES, {(tier.name,): tier.num_bytes for tier in tiers})
    bounds: dict[Labels, float] = {
        (tier.name,): tier.max_bytes for tier in tiers if tier.max_bytes is not None
    }
    yield family_of(catalog.TIER_CAPACITY, bounds)


def _values(tier: TierUseLike) -> Iterator[tuple[MetricDefinition, Labels, int]]:
    name = tier.name
    yield catalog.TIER_LOOKUPS, (name, "found"), tier.num_found
    yield catalog.TIER_LOOKUPS, (name, "missing"), tier.num_missing
    yield catalog.TIER_PAGES_FETCHED, (name,), tier.num_fetched
    yield catalog.TIER_PAGES_STORED, (name,), tier.num_stored
    yield catalog.TIER_BYTES_FETCHED, (name,), tier.fetched_bytes
    yield catalog.TIER_BYTES_STORED, (name,), tier.stored_bytes
    yield catalog.TIER_DECLINED, (name,), tier.num_declined
    yield catalog.TIER_FAILURES, (name,), tier.num_failures
    yield catalog.TIER_OPENINGS, (name,), tier.num_openings
    for reason, value in tier.num_rejected.items():
        yield catalog.TIER_REJECTED, (name, reason), value
    for reason, value in tier.num_dropped.items():
        yield catalog.TIER_DROPPED, (name, reason), value
