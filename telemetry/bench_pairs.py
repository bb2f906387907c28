"""Two bench runs side by side: what must be the same in both, and their series paired. No I/O.

Called by gateway.bench_reports. Runs of different times are compared only where nothing better can
be had: one run that takes its servers by turns sees the same machine for each.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from telemetry.bench_figures import Comparison, compare
from telemetry.bench_report import BenchReport
from telemetry.bench_run import BenchRun, Series


@dataclass(frozen=True, slots=True)
class PairedRuns:
    """`report` has both series of every pair; `unpaired` says which loads and servers are in one
    file only."""

    report: BenchReport
    unpaired: tuple[str, ...]


def differences(first: BenchRun, second: BenchRun) -> list[str]:
    """Why figures of the two say nothing about each other; unescaped."""
    pairs = {
        "workload": (first.workload.name, second.workload.name),
        "sizes": (first.workload.description, second.workload.description),
        "endpoint": (first.workload.endpoint, second.workload.endpoint),
        "seed": (first.seed, second.seed),
        "arrivals": (first.arrival.value, second.arrival.value),
        "warm-up": (first.warm_up, second.warm_up),
    }
    return [f"{name}: {one} and {other}" for name, (one, other) in pairs.items() if one != other]


def cautions(first: BenchRun, second: BenchRun) -> list[str]:
    """What a reader of the ratios must know, also where nothing differs."""
    began = f"{first.started_at} and {second.started_at}"
    lines = [
        f"the runs began at {began}: the ratios also hold what else the machines did then",
        "one run with several --url takes the servers by turns, and is a fairer comparison",
    ]
    if first.machine != second.machine:
        lines.append("the benches themselves ran on different machines")
    if first.version != second.version:
        lines.append(f"versions of the bench: {first.version} and {second.version}")
    if first.slo != second.slo:
        lines.append("the runs have different SLOs: goodput is left out")
    return lines


def pair_runs(first: BenchRun, second: BenchRun) -> PairedRuns:
    """Each series of the first with that of the second at the same load and of the same label;
    where each file has one server only, labels do not matter."""
    by_key = {_key(one, second): one for one in second.series}
    run = replace(
        first, series=(), slo=first.slo if first.slo == second.slo else None, price_per_hour=None
    )
    series: list[Series] = []
    comparisons: list[Comparison] = []
    unpaired: list[str] = []
    for one in first.series:
        other = by_key.pop(_key(one, first), None)
        if other is None:
            unpaired.append(f"only the first file has {_words(one)}")
            continue
        pair = replace(one, label=f"A: {one.label}"), replace(other, label=f"B: {other.label}")
        comparisons += compare(replace(run, series=pair))
        series += pair
    unpaired += [f"only the second file has {_words(one)}" for one in by_key.values()]
    whole = BenchReport.of(replace(run, series=tuple(series)))
    report = replace(whole, comparisons=tuple(comparisons))
    return PairedRuns(report, tuple(unpaired))


def _key(series: Series, run: BenchRun) -> tuple[object, str]:
    has_one_server = len(set(_servers(run))) == 1
    return series.level, "" if has_one_server else series.label


def _servers(run: BenchRun) -> Iterator[tuple[str, str]]:
    return ((one.label, one.url) for one in run.series)


def _words(series: Series) -> str:
    return f"{series.level.text} of {series.label}"
