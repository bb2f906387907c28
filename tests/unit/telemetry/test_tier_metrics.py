"""Metrics of the lower tiers: by tier and reason, and across restarts of the engine."""

from runtime.cache_messages import TierUse
from runtime.messages import EngineStats
from telemetry.metrics import Metrics
from tests.unit.telemetry.test_metrics import samples

PREFIX = "radixgate_cache_tier"


def scrape(*history: EngineStats | None) -> dict[str, float]:
    """What is seen after these were, one after the other."""
    metrics = Metrics()
    left = list(history)
    metrics.set_engine_source(lambda: left.pop(0))
    found: dict[str, float] = {}
    while left:
        found = samples(metrics)
    return found


def use(**figures: object) -> EngineStats:
    fields: dict[str, object] = {"num_pages": 3, "num_bytes": 99, "max_bytes": None, "is_up": True}
    return EngineStats(tiers=(TierUse("disk", **(fields | figures)),))  # type: ignore[arg-type]


def test_gauges_say_what_a_tier_holds_and_whether_it_is_asked() -> None:
    found = scrape(use(is_up=False, max_bytes=500))
    assert found[f"{PREFIX}_up[tier=disk]"] == 0
    assert found[f"{PREFIX}_pages[tier=disk]"] == 3
    assert found[f"{PREFIX}_bytes[tier=disk]"] == 99
    assert found[f"{PREFIX}_capacity_bytes[tier=disk]"] == 500
    assert not any("capacity" in name and PREFIX in name for name in scrape(use()))


def test_every_figure_of_a_tier_is_a_counter_of_its_own() -> None:
    found = scrape(
        use(
            num_found=1,
            num_missing=2,
            num_fetched=4,
            num_stored=5,
            fetched_bytes=6,
            stored_bytes=7,
            num_declined=8,
            num_failures=9,
            num_openings=10,
            num_rejected={"checksum": 11, "tokens": 12},
            num_dropped={"evicted": 13},
        )
    )
    names = (
        *("lookups_total[outcome=found][tier=disk]", "lookups_total[outcome=missing][tier=disk]"),
        *("pages_fetched_total[tier=disk]", "pages_stored_total[tier=disk]"),
        *("bytes_fetched_total[tier=disk]", "bytes_stored_total[tier=disk]"),
        *("declined_total[tier=disk]", "failures_total[tier=disk]"),
        "breaker_openings_total[tier=disk]",
        "pages_rejected_total[reason=checksum][tier=disk]",
        "pages_rejected_total[reason=tokens][tier=disk]",
        "pages_dropped_total[reason=evicted][tier=disk]",
    )
    assert [found[f"{PREFIX}_{name}"] for name in names] == [1, 2, *range(4, 14)]


def test_counters_go_on_when_the_engine_is_restarted() -> None:
    name = f"{PREFIX}_pages_fetched_total[tier=disk]"
    history = [use(num_fetched=5), use(num_fetched=8), None, use(num_fetched=2)]
    assert [scrape(*history[: end + 1])[name] for end in range(4)] == [5, 8, 8, 10]
    assert f"{PREFIX}_up[tier=disk]" not in scrape(use(), None)


def test_pinned_pages_are_a_gauge() -> None:
    assert scrape(EngineStats(pages_pinned=4))["radixgate_kv_pages_pinned"] == 4
