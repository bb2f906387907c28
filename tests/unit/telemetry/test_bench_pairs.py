"""Two runs side by side: what is compared with what, and what may not be."""

from dataclasses import replace

import pytest

from telemetry.bench_pairs import cautions, differences, pair_runs
from telemetry.bench_report import ratios
from telemetry.bench_run import Arrival, BenchRun, ClientMachine, Slo
from tests.bench_run_samples import record, run_of, series, two_servers_at_two_loads


def one_server(label: str, ttft_s: float, *clients: int) -> BenchRun:
    return run_of(*(series(record(ttft_s=ttft_s), label=label, clients=n) for n in clients))


def test_runs_of_one_server_each_are_compared_whatever_they_are_called() -> None:
    paired = pair_runs(one_server("old", 0.1, 1, 4), one_server("new", 0.3, 1, 4, 8))
    table = ratios(paired.report)
    assert [[cell.shown for cell in row[:2]] for row in table.rows] == [
        ["1 client", "B: new / A: old"],
        ["4 clients", "B: new / A: old"],
    ]
    assert {row[table.head.index("TTFT p50")].shown for row in table.rows} == {"3.00"}
    assert paired.unpaired == ("only the second file has 8 clients of new",)


def test_runs_of_several_servers_are_compared_by_label() -> None:
    first = two_servers_at_two_loads()
    second = replace(first, series=first.series[1:])
    paired = pair_runs(first, second)
    assert paired.unpaired == ("only the first file has 1 client of ours",)
    assert [one.label for one in paired.report.run.series] == [
        *("A: theirs", "B: theirs", "A: ours", "B: ours", "A: theirs", "B: theirs")
    ]
    for comparison in paired.report.comparisons:
        assert {ratio.value for ratio in comparison.ratios.values()} == {1.0}


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("seed", 2, "seed: 1 and 2"),
        ("arrival", Arrival.POISSON, "arrivals: closed and poisson"),
        ("warm_up", 0, "warm-up: 2 and 0"),
    ],
)
def test_runs_of_different_things_are_known(field: str, value: object, said: str) -> None:
    run = two_servers_at_two_loads()
    assert differences(run, run) == []
    assert differences(run, replace(run, **{field: value})) == [said]  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["name", "description", "endpoint"])
def test_workloads_of_other_names_sizes_or_endpoints_are_others(field: str) -> None:
    run = two_servers_at_two_loads()
    changed = replace(run.workload, **{field: "x"})
    assert len(differences(run, replace(run, workload=changed))) == 1


def test_a_comparison_never_comes_without_its_cautions() -> None:
    run = two_servers_at_two_loads()
    lines = cautions(run, replace(run, started_at="2027-01-01T00:00:00Z"))
    assert "2026-11-30T10:00:00Z and 2027-01-01T00:00:00Z" in lines[0]
    assert len(lines) == 2
    machine = ClientMachine("another", 1, "Linux", "3.12", "uvloop")
    other = replace(run, machine=machine, version="9", slo=Slo(1.0))
    assert len(cautions(run, other)) == 5


def test_goodput_under_different_limits_is_not_compared() -> None:
    run = two_servers_at_two_loads()
    head = ratios(pair_runs(run, run).report).head
    assert "goodput" in head
    assert "goodput" not in ratios(pair_runs(run, replace(run, slo=Slo(1.0))).report).head
