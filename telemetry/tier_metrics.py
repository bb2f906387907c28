"""Prometheus families of the prefix cache's lower tiers. Used by EngineCollector, under its lock.

Their counters start at zero with each incarnation of the engine; here they never go back.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from telemetry import names


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

# Of each metric: what it says, and its labels behind the tier's.
_COUNTERS: Mapping[str, tuple[str, Labels]] = {
    names.METRIC_TIER_LOOKUPS: ("Pages that were looked for, by what was found.", ("outcome",)),
    names.METRIC_TIER_PAGES_FETCHED: ("Pages that came back.", ()),
    names.METRIC_TIER_PAGES_STORED: ("Pages that were written.", ()),
    names.METRIC_TIER_BYTES_FETCHED: ("Bytes of pages that came back.", ()),
    names.METRIC_TIER_BYTES_STORED: ("Bytes of pages that were written.", ()),
    names.METRIC_TIER_DECLINED: ("Fetches that computing the pages was cheaper than.", ()),
    names.METRIC_TIER_FAILURES: ("Calls that failed or took too long.", ()),
    names.METRIC_TIER_OPENINGS: ("Times that nothing was asked of it any more for a while.", ()),
    names.METRIC_TIER_REJECTED: ("Pages that did not fit exactly.", ("reason",)),
    names.METRIC_TIER_DROPPED: ("Pages that should have been written and were not.", ("reason",)),
}


class TierMetrics:
    """Not to be called by two threads at once."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, Labels], int] = {}
        self._totals: dict[tuple[str, Labels], int] = {}

    def advance(self, tiers: Sequence[TierUseLike]) -> None:
        """Takes the engine's latest figures in."""
        for tier in tiers:
            for name, labels, value in _values(tier):
                last = self._last.get((name, labels), 0)
                # Less than before: a new incarnation counted all of it.
                added = value - last if value >= last else value
                self._totals[name, labels] = self._totals.get((name, labels), 0) + added
                self._last[name, labels] = value

    def counters(self) -> Iterator[Metric]:
        """All of them, without a sample where there never was a tier."""
        for name, (text, labels) in _COUNTERS.items():
            family = CounterMetricFamily(name, text, labels=("tier", *labels))
            for (counted, values), total in self._totals.items():
                if counted == name:
                    family.add_metric(values, total)
            yield family


def tier_gauges(tiers: Sequence[TierUseLike]) -> Iterator[Metric]:
    """What the tiers hold, and whether they are asked."""
    up = GaugeMetricFamily(
        names.METRIC_TIER_UP, "1 while the tier is asked for pages.", labels=["tier"]
    )
    pages = GaugeMetricFamily(names.METRIC_TIER_PAGES, "Pages in the tier.", labels=["tier"])
    used = GaugeMetricFamily(
        names.METRIC_TIER_BYTES, "Bytes that the tier takes up.", labels=["tier"]
    )
    bound = GaugeMetricFamily(
        names.METRIC_TIER_CAPACITY, "Bytes that it may take up.", labels=["tier"]
    )
    for tier in tiers:
        up.add_metric([tier.name], float(tier.is_up))
        pages.add_metric([tier.name], tier.num_pages)
        used.add_metric([tier.name], tier.num_bytes)
        if tier.max_bytes is not None:
            bound.add_metric([tier.name], tier.max_bytes)
    yield from (up, pages, used, bound)


def _values(tier: TierUseLike) -> Iterator[tuple[str, Labels, int]]:
    name = tier.name
    yield names.METRIC_TIER_LOOKUPS, (name, "found"), tier.num_found
    yield names.METRIC_TIER_LOOKUPS, (name, "missing"), tier.num_missing
    yield names.METRIC_TIER_PAGES_FETCHED, (name,), tier.num_fetched
    yield names.METRIC_TIER_PAGES_STORED, (name,), tier.num_stored
    yield names.METRIC_TIER_BYTES_FETCHED, (name,), tier.fetched_bytes
    yield names.METRIC_TIER_BYTES_STORED, (name,), tier.stored_bytes
    yield names.METRIC_TIER_DECLINED, (name,), tier.num_declined
    yield names.METRIC_TIER_FAILURES, (name,), tier.num_failures
    yield names.METRIC_TIER_OPENINGS, (name,), tier.num_openings
    for reason, value in tier.num_rejected.items():
        yield names.METRIC_TIER_REJECTED, (name, reason), value
    for reason, value in tier.num_dropped.items():
        yield names.METRIC_TIER_DROPPED, (name, reason), value
