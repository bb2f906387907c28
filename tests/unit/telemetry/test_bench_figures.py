"""Figures of bench runs, from records that were made up."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.bench_figures import compare, distribution, figures_of
from telemetry.bench_run import (
    Arrival,
    BenchRun,
    ClientMachine,
    Failure,
    FailureKind,
    LoadLevel,
    RequestRecord,
    Round,
    Series,
    Slo,
    WorkloadNote,
)

FOUR, EIGHT = (LoadLevel(Arrival.CLOSED, concurrency=count) for count in (4, 8))
GOOD = RequestRecord(
    user=0,
    turn=0,
    is_warm_up=False,
    scheduled_s=1.0,
    start_s=1.5,
    end_s=3.5,
    ttft_s=0.5,
    tpot_s=0.1,
    itl_s=(0.05, 0.15),
    prompt_tokens=10,
    output_tokens=3,
    cached_tokens=4,
    cacheable_tokens=5,
    reasoning_tokens=1,
)
FAILED = RequestRecord(
    0, 1, False, 2.0, 2.0, 2.5, failure=Failure(FailureKind.STATUS, "status 500", 500)
)


def series(*records: RequestRecord, wall_s: float = 2.0, **changes: object) -> Series:
    one = Series("ours", "http://x/v1", "m", FOUR, (Round(1, 0.0, wall_s, records),))
    return replace(one, **changes)  # type: ignore[arg-type]


def run_of(*many: Series, slo: Slo | None = None) -> BenchRun:
    return BenchRun(
        started_at="2026-01-01T00:00:00+00:00",
        version="0",
        command="",
        machine=ClientMachine("", 1, "", "", ""),
        workload=WorkloadNote("w", "", "chat"),
        seed=1,
        arrival=Arrival.CLOSED,
        warm_up=0,
        num_rounds=1,
        series=many,
        slo=slo,
    )


def test_latencies_and_tokens_are_of_answers_and_shares_of_all_that_was_sent() -> None:
    warm_up = replace(GOOD, is_warm_up=True, ttft_s=9.0, output_tokens=99)
    figures = figures_of(series(GOOD, FAILED, warm_up), slo=Slo(max_ttft_s=0.5))
    assert (figures.num_requests, figures.num_answered, figures.num_failed) == (2, 1, 1)
    assert figures.errors == {FailureKind.STATUS: 1}
    assert (figures.output_tok_s, figures.total_tok_s, figures.requests_per_s) == (1.5, 6.5, 0.5)
    assert figures.ttft is not None
    assert (figures.ttft.count, figures.ttft.max) == (1, 0.5)
    assert figures.e2e is not None
    assert figures.e2e.mean == 2.0
    assert figures.late is not None
    assert (figures.late.count, figures.late.max) == (2, 0.5)
    assert figures.user_tok_s_p50 == 10.0
    assert (figures.goodput_share, figures.goodput_per_s) == (0.5, 0.5)
    assert (figures.hit_rate, figures.used_share, figures.reasoning_tokens) == (0.4, 0.8, 1)


def test_the_gap_between_tokens_is_weighed_by_tokens_and_not_by_requests() -> None:
    quick = replace(GOOD, itl_s=(0.01,) * 8)
    itl = figures_of(series(GOOD, quick)).itl
    assert itl is not None
    assert (itl.count, itl.p50, itl.p99) == (10, 0.01, 0.15)


def test_what_was_cached_before_does_not_make_up_for_what_was_missed() -> None:
    other = replace(GOOD, cached_tokens=0)
    warm = replace(GOOD, cached_tokens=10)
    assert figures_of(series(warm, other)).used_share == 0.5


@pytest.mark.parametrize(
    "slo",
    [Slo(max_ttft_s=0.49), Slo(max_tpot_s=0.09), Slo(max_e2e_s=1.9), Slo(0.5, 0.05, 3.0)],
)
def test_a_request_that_misses_one_limit_is_not_good(slo: Slo) -> None:
    figures = figures_of(series(GOOD), slo=slo)
    assert (figures.goodput_share, figures.goodput_per_s) == (0.0, 0.0)


def test_an_answer_of_one_token_keeps_a_limit_of_tpot_and_one_of_none_keeps_nothing() -> None:
    single = replace(GOOD, tpot_s=None, itl_s=())
    empty = replace(GOOD, ttft_s=None, tpot_s=None)
    assert Slo(max_tpot_s=0.001).is_kept_by(single)
    assert not Slo(max_e2e_s=100.0).is_kept_by(empty)


def test_a_limit_is_said_as_it_is_given() -> None:
    assert Slo(max_ttft_s=0.5, max_e2e_s=10.0).text == "ttft=500ms,e2e=10000ms"


def test_a_price_an_hour_becomes_costs_of_a_million_tokens() -> None:
    """3.6 an hour is 0.001 a second, for 1.5 tokens out and 6.5 in all."""
    figures = figures_of(series(GOOD), price_per_hour=3.6)
    assert figures.output_cost == pytest.approx(0.001 / 1.5 * 1e6)
    assert figures.total_cost == pytest.approx(0.001 / 6.5 * 1e6)
    assert figures_of(series(FAILED), price_per_hour=3.6).output_cost is None


def test_what_nobody_says_is_not_taken_for_zero() -> None:
    silent = replace(GOOD, cached_tokens=None, cacheable_tokens=None, reasoning_tokens=None)
    figures = figures_of(series(silent))
    assert (figures.hit_rate, figures.used_share, figures.cacheable_tokens) == (None, None, None)
    assert (figures.goodput_share, figures.valid_share, figures.output_cost) == (None, None, None)
    assert figures_of(series(GOOD, silent)).cacheable_tokens is None  # of all, or not known


def test_only_answers_that_had_to_fit_a_schema_are_judged() -> None:
    records = [replace(GOOD, is_valid=valid) for valid in (True, False, None, True)]
    assert figures_of(series(*records)).valid_share == pytest.approx(2 / 3)


def test_rounds_are_taken_together() -> None:
    both = Series(
        "ours",
        "u",
        "m",
        FOUR,
        (Round(1, 0, 2.0, (GOOD,), 1, 0.5), Round(2, 9, 4.0, (GOOD, GOOD), 2, 0.1)),
    )
    figures = figures_of(both)
    assert (figures.num_requests, figures.wall_s, both.num_unsent) == (3, 6.0, 3)
    assert figures.output_tok_s == 1.5
    assert figures.client_cpu_share == pytest.approx(0.1)


def test_a_series_without_a_request_has_figures_all_the_same() -> None:
    figures = figures_of(series(wall_s=0.0), slo=Slo(max_ttft_s=1.0), price_per_hour=1.0)
    assert (figures.num_requests, figures.output_tok_s, figures.ttft) == (0, 0.0, None)
    assert (figures.goodput_share, figures.hit_rate) == (None, None)


def test_each_series_is_compared_with_the_first_server_at_its_level() -> None:
    slower = replace(GOOD, ttft_s=1.0)
    run = run_of(
        series(GOOD),
        series(slower, label="theirs"),
        series(slower, level=EIGHT),
        series(GOOD, label="theirs", level=EIGHT, wall_s=4.0),
    )
    found = compare(run)
    assert [(one.label, one.baseline, one.level) for one in found] == [
        ("theirs", "ours", FOUR),
        ("theirs", "ours", EIGHT),
    ]
    assert [one.ratios["ttft_p50"].value for one in found] == [2.0, 0.5]
    assert [one.ratios["output_tok_s"].value for one in found] == [1.0, 0.5]


def test_a_ratio_says_how_far_the_rounds_are_apart() -> None:
    def rounds(*ttfts: float) -> tuple[Round, ...]:
        return tuple(
            Round(number, 0, 1.0, (replace(GOOD, ttft_s=ttft),))
            for number, ttft in enumerate(ttfts, start=1)
        )

    run = run_of(series(rounds=rounds(1.0, 2.0)), series(rounds=rounds(2.0, 1.0), label="theirs"))
    (one,) = compare(run)
    ratio = one.ratios["ttft_p50"]
    assert (ratio.low, ratio.value, ratio.high) == (0.5, 1.0, 2.0)


def test_what_one_side_lacks_has_no_ratio() -> None:
    run = run_of(series(GOOD), series(FAILED, label="theirs"))
    (one,) = compare(run)
    assert "ttft_p50" not in one.ratios
    assert one.ratios["output_tok_s"].value == 0.0


@given(st.lists(st.floats(0, 1e6), min_size=1))
@settings(derandomize=True, deadline=None)
def test_percentiles_were_measured_and_are_in_order(seconds: list[float]) -> None:
    found = distribution(seconds)
    assert found is not None
    ordered = (found.p50, found.p90, found.p95, found.p99, found.max)
    assert list(ordered) == sorted(ordered)
    assert set(ordered) <= set(seconds)
    assert found.max == max(seconds)
    assert sum(one <= found.p50 for one in seconds) * 2 >= len(seconds)
