"""Medians over rounds and ratios within them."""

from dataclasses import replace
from typing import Any

import pytest

from tests.bench.load_summary import LoadSummary
from tests.bench.report import row_cells
from tests.bench.results import LoadRow, Results

ROW = LoadRow(
    server="ours",
    workload="short",
    num_clients=1,
    num_requests=8,
    num_failed=0,
    first_failure=None,
    wall_s=2.0,
    summary=LoadSummary(100.0, 50.0, 55.0, 60.0, 10.0, 10.5, 11.0, 12.0),
    valid_s=None,
    prompt_tokens=80,
    output_tokens=200,
    cached_tokens=16,
    client_cpu=0.05,
)


def row(server: str, tok_s: float, *, ttft_ms: float | None = 50.0, **changes: Any) -> LoadRow:
    summary = LoadSummary(tok_s, *[ttft_ms] * 3, *[10.0] * 4)
    return replace(ROW, server=server, summary=summary, **changes)


def results_of(*rounds: list[LoadRow]) -> Results:
    results = Results(report_row=lambda row: None)  # noqa: ARG005
    for number, rows in enumerate(rounds):
        for one in rows:
            results.add_row(number, one)
    return results


def test_a_ratio_is_the_median_of_the_rounds_own_ratios() -> None:
    results = results_of(
        [row("peer", 50.0), row("ours", 100.0)],  # 2.0
        [row("peer", 10.0), row("ours", 40.0)],  # 4.0, on a slower machine
        [row("peer", 80.0), row("ours", 80.0)],  # 1.0
    )
    (ratio,) = results.ratios("ours")
    assert (ratio.other, ratio.throughput) == ("peer", 2.0)


def test_json_is_compared_in_valid_answers_and_not_in_tokens() -> None:
    results = results_of(
        [
            row("peer", 100.0, workload="json", valid_s=2.0),
            row("ours", 50.0, workload="json", valid_s=3.0),
        ]
    )
    assert [ratio.throughput for ratio in results.ratios("ours")] == [1.5]


def test_only_the_same_load_is_compared() -> None:
    results = results_of([row("peer", 50.0), row("ours", 100.0, num_clients=16)])
    assert results.ratios("ours") == []


def test_a_round_without_a_figure_leaves_no_median() -> None:
    results = results_of([row("ours", 100.0, ttft_ms=None)], [row("ours", 200.0)])
    (median,) = results.medians()
    assert median.summary.ttft_p50_ms is None
    assert median.summary.output_tok_s == 150.0


def test_failures_are_added_up_and_the_first_is_kept() -> None:
    results = results_of(
        [row("ours", 1.0)],
        [row("ours", 1.0, num_failed=2, first_failure="status 503")],
        [row("ours", 1.0)],
    )
    (median,) = results.medians()
    assert (median.num_failed, median.first_failure) == (2, "status 503")


@pytest.mark.parametrize(
    ("changes", "cell"),
    [
        ({}, "0"),
        ({"num_failed": 3}, "3 of 8"),
        ({"client_cpu": 0.126}, "13"),
        ({"other_cores": 1.5}, "150"),
    ],
)
def test_a_row_shows_failures_and_who_else_used_the_processor(
    changes: dict[str, Any], cell: str
) -> None:
    assert cell in row_cells(row("ours", 1.0, **changes))[-3:]


def test_servers_stand_side_by_side_for_each_load() -> None:
    rows = [row(server, 1.0, num_clients=count) for server in ("peer", "ours") for count in (1, 16)]
    medians = results_of(rows).medians()
    assert [(r.num_clients, r.server) for r in medians] == [
        (1, "peer"),
        (1, "ours"),
        (16, "peer"),
        (16, "ours"),
    ]


def test_a_row_of_one_round_is_its_own_median() -> None:
    assert results_of([ROW]).medians() == [ROW]
