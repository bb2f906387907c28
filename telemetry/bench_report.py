"""What every report of a bench run says, whatever its form: the tables and the odd lines.

Terminal, Markdown and HTML render these, so that a number is the same in all of them. Names and
errors come from outside and leave here as one line of visible characters; whoever renders escapes
them. No I/O.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from telemetry.bench_figures import (
    Comparison,
    Distribution,
    Ratio,
    SeriesFigures,
    compare,
    figures_of,
)
from telemetry.bench_run import BenchRun, Series
from telemetry.svg_axis import column_text, number_text

_MS = 1e3
_MAX_NAME_CHARS = 60
_MAX_TEXT_CHARS = 200
RATIO_TITLES = {
    "output_tok_s": "output tok/s",
    "total_tok_s": "total tok/s",
    "requests_per_s": "requests/s",
    "ttft_p50": "TTFT p50",
    "ttft_p95": "TTFT p95",
    "tpot_p50": "TPOT p50",
    "tpot_p95": "TPOT p95",
    "itl_p99": "ITL p99",
    "e2e_p50": "E2E p50",
    "goodput_per_s": "goodput",
}


@dataclass(frozen=True, slots=True)
class Number:
    """One number of a cell, in the unit that its column names. `value` is what was computed."""

    value: float
    text: str


@dataclass(frozen=True, slots=True)
class Cell:
    """A name from outside (`is_foreign`), or numbers; neither is shown as a dash."""

    text: str = ""
    numbers: tuple[Number, ...] = ()
    is_foreign: bool = False

    @property
    def shown(self) -> str:
        return self.text or " / ".join(number.text for number in self.numbers) or "–"


@dataclass(frozen=True, slots=True)
class Table:
    """The first `num_names` columns say what a row is of."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    num_names: int = 2


@dataclass(frozen=True, slots=True)
class BenchReport:
    """A run with what is computed from it: `figures` has one for each series."""

    run: BenchRun
    figures: tuple[SeriesFigures, ...]
    comparisons: tuple[Comparison, ...]

    @classmethod
    def of(cls, run: BenchRun) -> "BenchReport":
        figures = (
            figures_of(one, slo=run.slo, price_per_hour=run.price_per_hour) for one in run.series
        )
        return cls(run, tuple(figures), compare(run))

    def each(self) -> Iterator[tuple[Series, SeriesFigures]]:
        return zip(self.run.series, self.figures, strict=True)


def setup_rows(run: BenchRun) -> list[tuple[str, str]]:
    """What was measured, how, and from where; all of it may come from outside."""
    machine, workload = run.machine, run.workload
    source = f" ({workload.source})" if workload.source else ""
    servers = {f"{one.label}: {one.model} at {one.url}": None for one in run.series}
    rows = [
        ("command", run.command),
        ("workload", f"{workload.name}{source}: {workload.description}"),
        ("endpoint", workload.endpoint),
        ("arrivals", run.arrival.value),
        ("rounds", f"{run.num_rounds}, each after {run.warm_up} requests of warm-up"),
        ("seed", str(run.seed)),
        *(("server", server) for server in servers),
        ("client", f"{machine.processor}, {machine.num_cpus} processors, {machine.system}"),
        ("software", f"Python {machine.python}, {machine.event_loop}, radixgate {run.version}"),
        ("started", run.started_at),
    ]
    if run.slo is not None:
        rows.append(("SLO", run.slo.text or "no limit: every answer is good"))
    if run.price_per_hour is not None:
        rows.append(("price", f"{number_text(run.price_per_hour)} an hour for each server"))
    return [(name, one_line(text, _MAX_TEXT_CHARS * 5)) for name, text in rows]


def overview(report: BenchReport) -> Table:
    """A row a load level and server; a column that no row has a figure for is left out."""
    columns: dict[str, list[Cell]] = {}
    for _, figures in report.each():
        for head, cell in _overview_cells(figures):
            columns.setdefault(head, []).append(cell)
    kept = {head: cells for head, cells in columns.items() if any(one.numbers for one in cells)}
    names = [_names(series) for series in report.run.series]
    rows = tuple(
        (*name, *(cells[index] for cells in kept.values())) for index, name in enumerate(names)
    )
    return Table("Results", ("load", "server", *kept), rows)


def ratios(report: BenchReport) -> Table:
    """Each server over the first one at the same level; empty where there is only one. In
    parentheses stand the smallest and the largest of the rounds, where there are several."""
    heads = [name for name in RATIO_TITLES if any(name in c.ratios for c in report.comparisons)]
    rows = tuple(
        (
            Cell(one.level.text),
            Cell(f"{name_of(one.label)} / {name_of(one.baseline)}", is_foreign=True),
            *(_ratio_cell(one.ratios.get(name)) for name in heads),
        )
        for one in report.comparisons
    )
    return Table("Ratios", ("load", "servers", *(RATIO_TITLES[name] for name in heads)), rows)


def distributions(report: BenchReport) -> Table:
    """Every latency in full, in ms."""
    rows = []
    for series, figures in report.each():
        named = {
            "TTFT": figures.ttft,
            "ITL": figures.itl,
            "TPOT": figures.tpot,
            "E2E": figures.e2e,
            "sent late": figures.late,
        }
        for quantity, found in named.items():
            if found is not None:
                cells = (Cell(quantity), _count(found.count), *_full_cells(found))
                rows.append((*_names(series), *cells))
    head = ("load", "server", "ms", "values", "mean", "p50", "p90", "p95", "p99", "max")
    return Table("Latencies", head, tuple(rows), num_names=3)


def name_of(label: str) -> str:
    return one_line(label, _MAX_NAME_CHARS)


def one_line(text: str, max_chars: int = _MAX_TEXT_CHARS) -> str:
    """Without line breaks, controls and invisible characters, and not too long."""
    line = "".join(char if char.isprintable() else "?" for char in " ".join(text.split()))
    return line if len(line) <= max_chars else f"{line[: max_chars - 1]}…"


def _overview_cells(one: SeriesFigures) -> Iterator[tuple[str, Cell]]:
    yield "requests", _count(one.num_requests)
    yield "failed", _count(one.num_failed)
    yield "TTFT p50 / p95 / p99 ms", _triple(one.ttft)
    yield "TPOT p50 / p95 / p99 ms", _triple(one.tpot)
    yield "E2E p50 / p95 / p99 ms", _triple(one.e2e)
    yield "output tok/s", _amount(one.output_tok_s)
    yield "total tok/s", _amount(one.total_tok_s)
    yield "tok/s a user", _amount(one.user_tok_s_p50)
    yield "requests/s", _amount(one.requests_per_s)
    yield "good", _share(one.goodput_share)
    yield "good/s", _amount(one.goodput_per_s)
    yield "hit rate", _share(one.hit_rate)
    yield "of cacheable", _share(one.used_share)
    yield "valid", _share(one.valid_share)
    yield "cost / M output", _amount(one.output_cost)
    yield "cost / M total", _amount(one.total_cost)


def _names(series: Series) -> tuple[Cell, Cell]:
    return Cell(series.level.text), Cell(name_of(series.label), is_foreign=True)


def _full_cells(one: Distribution) -> Iterator[Cell]:
    for seconds in (one.mean, one.p50, one.p90, one.p95, one.p99, one.max):
        yield Cell(numbers=(_ms(seconds),))


def _triple(one: Distribution | None) -> Cell:
    return Cell() if one is None else Cell(numbers=tuple(map(_ms, (one.p50, one.p95, one.p99))))


def _ms(seconds: float) -> Number:
    return Number(seconds * _MS, column_text(seconds * _MS))


def _count(value: int) -> Cell:
    return Cell(numbers=(Number(value, f"{value:,}"),))


def _amount(value: float | None) -> Cell:
    return Cell() if value is None else Cell(numbers=(Number(value, column_text(value)),))


def _share(value: float | None) -> Cell:
    """In per cent."""
    if value is None:
        return Cell()
    return Cell(numbers=(Number(value * 100, f"{column_text(value * 100)}%"),))


def _ratio_cell(ratio: Ratio | None) -> Cell:
    if ratio is None:
        return Cell()
    spread = "" if ratio.low == ratio.high else f" ({ratio.low:.2f} – {ratio.high:.2f})"
    return Cell(numbers=(Number(ratio.value, f"{ratio.value:.2f}{spread}"),))
