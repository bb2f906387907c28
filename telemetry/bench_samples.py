"""The pictures of single requests of one load: how TTFT and ITL are distributed, TTFT over time.

No more points are drawn than a page can hold; where some are left out the caption says which.
Called by telemetry.bench_html.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from telemetry.bench_grid import Grid, Picture
from telemetry.bench_report import Cell, Number, Table
from telemetry.bench_run import Series
from telemetry.load import nearest_rank
from telemetry.svg_axis import amount_axis, column_text, number_text, share_axis
from telemetry.svg_plot import Dots, Line, Mark, Plot, Point

_MS = 1e3
# Of the whole page: about 12 bytes each.
MAX_DOTS = 6000
MAX_STEPS = 6000
MAX_STEPS_A_LINE = 150
# Of the dots that may be drawn, so many are for the largest values.
_SLOWEST_SHARE = 0.2
_QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)


@dataclass(frozen=True, slots=True)
class Budget:
    """How many points a server's line or cloud may have."""

    num_steps: int
    num_dots: int

    @classmethod
    def of(cls, num_series: int) -> "Budget":
        share = max(num_series, 1)
        return cls(max(2, min(MAX_STEPS_A_LINE, MAX_STEPS // share)), max(2, MAX_DOTS // share))


def level_pictures(grid: Grid, level: int, budget: Budget) -> Iterator[Picture]:
    """Of one load: nothing where no request was measured."""
    found = {
        server: grid.cells[level, server][0]
        for server in range(len(grid.servers))
        if (level, server) in grid.cells
    }
    yield from _cdf(grid, level, found, "TTFT", _ttfts_ms, budget)
    yield from _cdf(grid, level, found, "ITL", _itls_ms, budget)
    yield from _over_time(grid, level, found, budget)


def _ttfts_ms(series: Series) -> list[float]:
    answered = (one for one in series.measured() if one.failure is None)
    return sorted(one.ttft_s * _MS for one in answered if one.ttft_s is not None)


def _itls_ms(series: Series) -> list[float]:
    answered = (one for one in series.measured() if one.failure is None)
    return sorted(gap * _MS for one in answered for gap in one.itl_s)


def _cdf(
    grid: Grid,
    level: int,
    found: dict[int, Series],
    name: str,
    values_of: Callable[[Series], list[float]],
    budget: Budget,
) -> Iterator[Picture]:
    """How large a share of the values is at most so large."""
    sorted_ms = {server: values for server, one in found.items() if (values := values_of(one))}
    if not sorted_ms:
        return
    steps = {server: _steps(values, budget.num_steps) for server, values in sorted_ms.items()}
    marks = [Line(server, points, is_stepped=True) for server, points in steps.items()]
    title = f"{name}: share of values up to a time"
    largest = max(map(len, sorted_ms.values()))
    caption = ""
    if largest > budget.num_steps:
        caption = f"Drawn at {budget.num_steps} evenly spaced ranks of up to {largest:,} values."
    x = amount_axis(f"{name}, ms", [at for points in steps.values() for at, _ in points])
    table = _quantile_table(grid, title, sorted_ms)
    said = [
        f"{grid.name(server)}: half are at most {number_text(nearest_rank(values, 0.5))} ms"
        for server, values in sorted_ms.items()
    ]
    plot = Plot(f"{name.lower()}-{level}", title, "; ".join(said), x, share_axis("share"), marks)
    yield Picture(plot, caption, grid.key(), table)


def _steps(ordered: Sequence[float], max_steps: int) -> list[Point]:
    """From 0 at the smallest to 1 at the largest, through evenly spaced ranks."""
    num = len(ordered)
    chosen = min(num, max_steps)
    ranks = [-(-num * (step + 1) // chosen) for step in range(chosen)]
    return [(ordered[0], 0.0), *((ordered[rank - 1], rank / num) for rank in ranks)]


def _quantile_table(grid: Grid, title: str, sorted_ms: dict[int, list[float]]) -> Table:
    rows = []
    for server, values in sorted_ms.items():
        at = [nearest_rank(values, share) for share in _QUANTILES]
        numbers = (Cell(numbers=(Number(one, column_text(one)),)) for one in at)
        rows.append((Cell(grid.name(server), is_foreign=True), *numbers))
    head = ("server", *(f"{share:.0%}" for share in _QUANTILES))
    return Table(f"{title}, ms", head, tuple(rows), num_names=1)


def _over_time(
    grid: Grid, level: int, found: dict[int, Series], budget: Budget
) -> Iterator[Picture]:
    """A dot for each answer where it was asked for, a cross at the bottom for each failure."""
    marks: list[Mark] = []
    rows = []
    is_thinned = False
    times_s: list[float] = []
    ttfts_ms: list[float] = []
    for server, series in found.items():
        records = list(series.measured())
        answers = [
            (one.start_s, one.ttft_s * _MS)
            for one in records
            if one.failure is None and one.ttft_s is not None
        ]
        failures = [(one.start_s, 0.0) for one in records if one.failure is not None]
        dots, crosses = _thinned(answers, budget.num_dots), _every(failures, budget.num_dots)
        is_thinned |= len(dots) < len(answers) or len(crosses) < len(failures)
        marks += [Dots(server, dots), Dots(server, crosses, are_crosses=True)]
        times_s += [one.start_s for one in records]
        ttfts_ms += [value for _, value in answers]
        counts = (len(answers), len(failures), len(dots), len(crosses))
        numbers = (Cell(numbers=(Number(count, f"{count:,}"),)) for count in counts)
        rows.append((Cell(grid.name(server), is_foreign=True), *numbers))
    if not any(isinstance(mark, Dots) and mark.points for mark in marks):
        return
    title = "TTFT over time"
    head = ("server", "answers", "failures", "dots", "crosses")
    x = amount_axis("sent at, s of its round", times_s, may_be_log=False)
    y = amount_axis("TTFT, ms", ttfts_ms, may_be_log=False)
    spoken = "A dot for each answer, a cross at the bottom for each request that failed."
    caption = spoken
    if is_thinned:
        caption += (
            " Not all are drawn: of each server's answers the slowest and, of the others, evenly"
            " many in their order; the table has the counts."
        )
    plot = Plot(f"time-{level}", title, spoken, x, y, marks)
    yield Picture(plot, caption, grid.key(), Table(title, head, tuple(rows), num_names=1))


def _thinned(points: Sequence[Point], max_points: int) -> list[Point]:
    """All where they fit; else the slowest, and of the others every so many."""
    if len(points) <= max_points:
        return list(points)
    num_slowest = int(max_points * _SLOWEST_SHARE)
    by_value = sorted(range(len(points)), key=lambda index: points[index][1])
    slowest = set(by_value[len(points) - num_slowest :])
    others = [point for index, point in enumerate(points) if index not in slowest]
    kept = _every(others, max_points - num_slowest)
    return [*(points[index] for index in sorted(slowest)), *kept]


def _every(points: Sequence[Point], max_points: int) -> list[Point]:
    return list(points[:: max(1, -(-len(points) // max_points))])
