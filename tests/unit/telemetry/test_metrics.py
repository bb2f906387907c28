"""The exposition: names, labels, buckets, and engine counters over restarts."""

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from runtime.messages import EngineStats
from telemetry.metrics import INTER_TOKEN_BUCKETS, TTFT_BUCKETS, Metrics

DOCS = Path(__file__).resolve().parents[3] / "docs/observability.md"


def samples(metrics: Metrics) -> dict[str, float]:
    """Each sample by `name{label=value,...}`."""
    body, _ = metrics.render()
    return {
        sample.name
        + "".join(f"[{key}={value}]" for key, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def complete_metrics() -> Metrics:
    metrics = Metrics()
    metrics.set_engine_source(EngineStats)
    metrics.set_span_source(exported=lambda: 3, dropped=lambda: 4)
    return metrics


def test_every_name_begins_with_radixgate() -> None:
    names = {re.split(r"[{ ]", line)[0] for line in exposition_lines(complete_metrics())}
    assert names
    assert all(name.startswith("radixgate_") for name in names)


def exposition_lines(metrics: Metrics) -> list[str]:
    body, content_type = metrics.render()
    assert content_type.startswith("text/plain; version=0.0.4")
    return [line for line in body.decode().splitlines() if not line.startswith("#")]


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
    assert len(rejected) == 33
    assert rejected["radixgate_rejected_total[reason=other]"] == 68


def test_tokens_add_up() -> None:
    metrics = Metrics()
    metrics.count_tokens(prompt=10, cached=4, written=5, completion=3)
    metrics.count_tokens(prompt=1, cached=0, written=1, completion=2)
    found = samples(metrics)
    assert found["radixgate_prompt_tokens_total"] == 11
    assert found["radixgate_cached_tokens_total"] == 4
    assert found["radixgate_cache_written_tokens_total"] == 6
    assert found["radixgate_generated_tokens_total"] == 5


def test_latencies_land_in_their_buckets() -> None:
    metrics = Metrics()
    metrics.observe_ttft(30.0)
    metrics.observe_inter_token(0.006, num_tokens=4)
    found = samples(metrics)
    assert found["radixgate_time_to_first_token_seconds_bucket[le=20.0]"] == 0
    assert found["radixgate_time_to_first_token_seconds_bucket[le=40.0]"] == 1
    assert found["radixgate_inter_token_seconds_bucket[le=0.005]"] == 0
    assert found["radixgate_inter_token_seconds_bucket[le=0.01]"] == 4
    assert found["radixgate_inter_token_seconds_sum"] == pytest.approx(0.024)


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


def test_engine_counters_never_go_back_when_the_engine_restarts() -> None:
    metrics = Metrics()
    history: list[EngineStats | None] = [EngineStats(preemptions=5)]
    metrics.set_engine_source(lambda: history[-1])
    seen = []
    for stats in (5, 8, None, 2, 3):
        history.append(None if stats is None else EngineStats(preemptions=stats))
        seen.append(samples(metrics)["radixgate_preemptions_total"])
    assert seen == [5, 8, 8, 10, 11]


def test_a_dead_engine_has_no_gauges_and_says_so() -> None:
    metrics = Metrics()
    metrics.set_engine_source(lambda: None)
    found = samples(metrics)
    assert found["radixgate_engine_up"] == 0
    assert "radixgate_requests_running" not in found


def test_span_counts_come_from_their_source() -> None:
    found = samples(complete_metrics())
    assert found["radixgate_spans_exported_total"] == 3
    assert found["radixgate_spans_dropped_total"] == 4


def test_two_servers_count_apart() -> None:
    first, second = Metrics(), Metrics()
    first.count_tokens(prompt=1, cached=0, written=0, completion=0)
    assert samples(second)["radixgate_prompt_tokens_total"] == 0


def test_the_documented_names_are_the_exposed_names() -> None:
    body, _ = complete_metrics().render()
    exposed = set(re.findall(r"^# TYPE (\S+)", body.decode(), re.MULTILINE))
    documented = set(
        re.findall(r"^\| `(radixgate_\w+)", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert documented == exposed
