"""The exposition: labels, buckets, tokens, exemplars, and engine counters over restarts."""

import threading
from dataclasses import dataclass, field
from typing import Literal

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from runtime.messages import EngineStats
from telemetry.catalog import INTER_TOKEN_BUCKETS, ROUTES, TTFT_BUCKETS
from telemetry.exposition import OPENMETRICS
from telemetry.goodput import Ended, Slo
from telemetry.metrics import BuildInfo, Metrics
from telemetry.phase_figures import PhaseFigures

TRACE = {"trace_id": "0" * 31 + "1", "span_id": "0" * 15 + "2"}


@dataclass(frozen=True)
class Took:
    """A usage."""

    prompt_tokens: int
    completion_tokens: int = 0
    cached_tokens: int = 0
    written_tokens: int = 0
    forced_tokens: int = 0
    tier_tokens: dict[Literal["device", "host", "disk", "redis"], int] = field(default_factory=dict)


def samples(metrics: Metrics) -> dict[str, float]:
    """Each sample by `name{label=value,...}`."""
    body, _ = metrics.render()
    return {
        sample.name
        + "".join(f"[{key}={value}]" for key, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def test_finished_requests_count_by_route_outcome_and_status() -> None:
    metrics = Metrics()
    for status in (200, 200, 503):
        metrics.request_finished(
            route="/v1/completions",
            outcome="ok" if status == 200 else "rejected",
            status=status,
            duration_s=0.03,
        )
    found = samples(metrics)
    label = "[outcome={}][route=/v1/completions][status={}]"
    assert found["radixgate_requests_total" + label.format("ok", 200)] == 2
    assert found["radixgate_requests_total" + label.format("rejected", 503)] == 1
    assert found["radixgate_request_duration_seconds_count[route=/v1/completions]"] == 3
    assert found["radixgate_request_duration_seconds_bucket[le=0.02][route=/v1/completions]"] == 0
    assert found["radixgate_request_duration_seconds_bucket[le=0.04][route=/v1/completions]"] == 3


def test_what_began_and_did_not_end_is_in_flight() -> None:
    metrics = Metrics()
    for _ in range(3):
        metrics.request_started()
    metrics.request_finished(route=ROUTES[0], outcome="aborted", status=499, duration_s=1)
    assert samples(metrics)["radixgate_requests_in_flight"] == 2


def test_paths_of_scanners_share_one_label() -> None:
    metrics = Metrics()
    for i in range(50):
        metrics.request_finished(route=f"/wp-{i}.php", outcome="rejected", status=404, duration_s=0)
    total = "radixgate_requests_total[outcome=rejected][route=other][status=404]"
    assert samples(metrics)[total] == 50


def test_reasons_are_limited_in_number_and_counted_all_the_same() -> None:
    metrics = Metrics()
    for i in range(100):
        metrics.rejected(f"reason{i}")
    rejected = {k: v for k, v in samples(metrics).items() if k.startswith("radixgate_rejected")}
    assert len(rejected) == 65
    assert rejected["radixgate_rejected_total[reason=other]"] == 36


def test_tokens_add_up() -> None:
    metrics = Metrics()
    metrics.count_usage(Took(10, 3, 4, written_tokens=5), tenant="", model="m")
    metrics.count_usage(Took(1, 2, 0, written_tokens=1, forced_tokens=2), tenant="t", model="m")
    found = samples(metrics)
    assert found["radixgate_prompt_tokens_total"] == 11
    assert found["radixgate_cached_tokens_total"] == 4
    assert found["radixgate_cache_written_tokens_total"] == 6
    assert found["radixgate_generated_tokens_total"] == 5
    assert found["radixgate_forced_tokens_total"] == 2


def test_cached_tokens_are_told_by_tier_and_add_up_to_all() -> None:
    metrics = Metrics()
    metrics.count_usage(
        Took(99, cached_tokens=30, tier_tokens={"disk": 8, "redis": 2}), tenant="", model="m"
    )
    metrics.count_usage(Took(9, cached_tokens=5), tenant="", model="m")
    found = samples(metrics)
    tiers = {
        tier: found[f"radixgate_cached_tokens_by_tier_total[tier={tier}]"]
        for tier in ("device", "host", "disk", "redis")
    }
    assert tiers == {"device": 25, "host": 0, "disk": 8, "redis": 2}
    assert sum(tiers.values()) == found["radixgate_cached_tokens_total"]


def test_latencies_land_in_their_buckets() -> None:
    metrics = Metrics()
    metrics.observe_ttft(30.0)
    metrics.observe_tpot(0.02, operation="text_completion")
    metrics.observe_inter_token(0.006, num_tokens=4)
    found = samples(metrics)
    assert found["radixgate_time_to_first_token_seconds_bucket[le=20.0][operation=chat]"] == 0
    assert found["radixgate_time_to_first_token_seconds_bucket[le=40.0][operation=chat]"] == 1
    tpot = "radixgate_time_per_output_token_seconds_bucket[le={}][operation=text_completion]"
    assert (found[tpot.format(0.01)], found[tpot.format(0.025)]) == (0, 1)
    assert found["radixgate_inter_token_seconds_bucket[le=0.005]"] == 0
    assert found["radixgate_inter_token_seconds_bucket[le=0.01]"] == 4
    assert found["radixgate_inter_token_seconds_sum"] == pytest.approx(0.024)


def test_phases_become_waits_masks_and_reasons() -> None:
    metrics = Metrics()
    figures = PhaseFigures(queue_s=0.2, mask_s=0.003, misses=("evicted", "evicted", "grows"))
    metrics.observe_phases(figures, is_constrained=True)
    metrics.observe_phases(PhaseFigures(0.4, 0.0, ("made up",)), is_constrained=False)
    metrics.observe_phases(PhaseFigures(None, None, ()), is_constrained=True)
    found = samples(metrics)
    assert found["radixgate_queue_seconds_count"] == 2
    assert found["radixgate_queue_seconds_sum"] == pytest.approx(0.6)
    assert found["radixgate_mask_seconds_count"] == 1
    assert found["radixgate_mask_seconds_sum"] == pytest.approx(0.003)
    assert found["radixgate_cache_misses_total[reason=evicted]"] == 2
    assert found["radixgate_cache_misses_total[reason=grows]"] == 1
    assert found["radixgate_cache_misses_total[reason=other]"] == 1


def test_goodput_is_judged_by_the_limits_that_are_set() -> None:
    metrics = Metrics()
    metrics.count_goodput(Ended("ok", 200, 9.0, ttft_s=8.0))
    metrics.set_slo(Slo(ttft_s=2.0))
    for ended in (
        Ended("ok", 200, 9.0, ttft_s=1.0, tpot_s=5.0),
        Ended("ok", 200, 9.0, ttft_s=3.0),
        Ended("error", 500, 0.1),
        Ended("rejected", 400, 0.1),
    ):
        metrics.count_goodput(ended)
    found = samples(metrics)
    results = ("good", "slow_ttft", "slow_tpot", "failed")
    name = "radixgate_goodput_requests_total[result={}]"
    assert [found[name.format(result)] for result in results] == [2, 1, 0, 1]
    assert found["radixgate_slo_seconds[limit=ttft]"] == 2
    assert "radixgate_slo_seconds[limit=tpot]" not in found


def test_exemplars_are_told_to_who_asks_for_openmetrics_only() -> None:
    metrics = Metrics()
    metrics.observe_ttft(0.3, exemplar=TRACE)
    metrics.observe_tpot(0.03, exemplar=TRACE)
    metrics.observe_inter_token(0.03, exemplar=TRACE)
    metrics.observe_inter_token(0.003)
    metrics.request_finished(
        route=ROUTES[0], outcome="ok", status=200, duration_s=3, exemplar=TRACE
    )
    body, content_type = metrics.render(OPENMETRICS)
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    found = {
        (family.name, sample.exemplar.value)
        for family in openmetrics.text_string_to_metric_families(body.decode())  # type: ignore[no-untyped-call]
        for sample in family.samples
        if sample.exemplar is not None and sample.exemplar.labels == TRACE
    }
    assert found == {
        ("radixgate_time_to_first_token_seconds", 0.3),
        ("radixgate_time_per_output_token_seconds", 0.03),
        ("radixgate_inter_token_seconds", 0.03),
        ("radixgate_request_duration_seconds", 3.0),
    }
    plain, content_type = metrics.render()
    assert content_type.startswith("text/plain; version=0.0.4")
    assert b"trace_id" not in plain


@pytest.mark.parametrize("buckets", [TTFT_BUCKETS, INTER_TOKEN_BUCKETS])
def test_buckets_rise_and_reach_what_a_loaded_cpu_needs(buckets: tuple[float, ...]) -> None:
    assert list(buckets) == sorted(set(buckets))
    assert {0.01, 0.1, 2.5, 20.0, 40.0, 80.0} <= set(buckets)


def test_engine_gauges_are_read_at_each_scrape() -> None:
    metrics = Metrics()
    stats = [EngineStats(num_waiting=1, pages_free=5, pages_cached=3, pages_held=2, pages_total=10)]
    metrics.set_engine_source(lambda: stats[-1])
    found = samples(metrics)
    assert found["radixgate_engine_up"] == 1
    assert found["radixgate_requests_waiting"] == 1
    assert [found[f"radixgate_kv_pages[state={s}]"] for s in ("free", "cached", "held")] == [
        5,
        3,
        2,
    ]
    assert found["radixgate_kv_pages_capacity"] == 10
    stats.append(EngineStats(num_waiting=7))
    assert samples(metrics)["radixgate_requests_waiting"] == 7


def test_every_counter_of_the_engine_is_told_under_its_name() -> None:
    metrics = Metrics()
    stats = EngineStats(
        computed_prompt_tokens=1,
        recomputed_tokens=2,
        preemptions=3,
        fair_preemptions=4,
        evicted_pages=5,
        steps=6,
        num_running=7,
        pages_locked=8,
    )
    metrics.set_engine_source(lambda: stats)
    found = samples(metrics)
    counters = (
        *("computed_prompt_tokens", "recomputed_tokens", "preemptions"),
        *("fair_preemptions", "evicted_pages", "engine_steps"),
    )
    assert [found[f"radixgate_{name}_total"] for name in counters] == [1, 2, 3, 4, 5, 6]
    assert (found["radixgate_requests_running"], found["radixgate_kv_pages_locked"]) == (7, 8)


def test_engine_counters_never_go_back_when_the_engine_restarts() -> None:
    metrics = Metrics()
    history: list[EngineStats | None] = [EngineStats(preemptions=5)]
    metrics.set_engine_source(lambda: history[-1])
    seen = []
    for stats in (5, 8, None, 2, 3):
        history.append(None if stats is None else EngineStats(preemptions=stats))
        seen.append(samples(metrics)["radixgate_preemptions_total"])
    assert seen == [5, 8, 8, 10, 11]


def test_a_reading_that_another_scrape_overtakes_is_no_restart() -> None:
    """Both a scrape and the export read: the older figures must not be taken in last."""
    metrics = Metrics()
    older, newer = EngineStats(preemptions=5), EngineStats(preemptions=8)
    readings = [older, newer]
    overtaking = threading.Thread(target=metrics.render)

    def read() -> EngineStats:
        stats = readings.pop(0) if readings else newer
        if stats is older:
            overtaking.start()
            overtaking.join(0.05)  # it waits its turn
        return stats

    metrics.set_engine_source(read)
    metrics.render()
    overtaking.join()
    assert samples(metrics)["radixgate_preemptions_total"] == 8


def test_a_dead_engine_has_no_gauges_and_says_so() -> None:
    metrics = Metrics()
    metrics.set_engine_source(lambda: None)
    found = samples(metrics)
    assert found["radixgate_engine_up"] == 0
    assert "radixgate_requests_running" not in found


def test_span_counts_come_from_their_source() -> None:
    metrics = Metrics()
    metrics.set_span_source(exported=lambda: 3, dropped=lambda: 4)
    found = samples(metrics)
    assert found["radixgate_spans_exported_total"] == 3
    assert found["radixgate_spans_dropped_total"] == 4


def test_what_is_served_is_told_once_it_is_known() -> None:
    metrics = Metrics()
    told: list[BuildInfo | None] = [None, BuildInfo("1.2", "small", "float32", "cpu")]
    metrics.set_build_source(lambda: told.pop(0))
    name = "radixgate_build_info[device=cpu][dtype=float32][model=small][version=1.2]"
    assert [samples(metrics).get(name) for _ in range(2)] == [None, 1]


def test_exports_of_metrics_are_counted_by_what_came_of_them() -> None:
    metrics = Metrics()
    for is_ok in (True, False, True):
        metrics.metrics_exported(is_ok)
    found = samples(metrics)
    assert found["radixgate_metric_exports_total[outcome=ok]"] == 2
    assert found["radixgate_metric_exports_total[outcome=error]"] == 1


def test_two_servers_count_apart() -> None:
    first, second = Metrics(), Metrics()
    first.count_usage(Took(1), tenant="", model="m")
    assert samples(second)["radixgate_prompt_tokens_total"] == 0
