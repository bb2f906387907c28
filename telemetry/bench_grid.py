"""The series of a bench run as a grid of loads and servers, and what a picture of it consists of.

Called by those who describe pictures: telemetry.bench_plots and telemetry.bench_samples.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from telemetry.bench_figures import SeriesFigures
from telemetry.bench_report import BenchReport, Cell, Number, Table, name_of
from telemetry.bench_run import Arrival, LoadLevel, Series
from telemetry.svg_axis import Axis, column_text, number_text, place_axis
from telemetry.svg_plot import Plot, Stroke

# By place of load and server.
Values = Mapping[tuple[int, int], float]
_MAX_SPOKEN = 4
_AXIS_LABELS = {
    Arrival.CLOSED: "clients",
    Arrival.POISSON: "requests sent a second",
    Arrival.TRACE: "speed of the trace",
}


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """What a colour or a stroke stands for; `color` None = that stroke in any colour."""

    text: str
    color: int | None = None
    stroke: Stroke = "solid"


@dataclass(frozen=True, slots=True)
class Picture:
    """A plot with what stands around it; the table has its numbers."""

    plot: Plot
    caption: str
    key: tuple[KeyEntry, ...]
    table: Table


@dataclass(frozen=True, slots=True)
class Grid:
    """Loads and servers in the order in which they came. A server's place is its colour."""

    levels: tuple[LoadLevel, ...]
    servers: tuple[tuple[str, str], ...]
    cells: Mapping[tuple[int, int], tuple[Series, SeriesFigures]]

    @classmethod
    def of(cls, report: BenchReport) -> "Grid":
        levels: dict[LoadLevel, int] = {}
        servers: dict[tuple[str, str], int] = {}
        cells = {}
        for series, figures in report.each():
            level = levels.setdefault(series.level, len(levels))
            server = servers.setdefault((series.label, series.url), len(servers))
            cells[level, server] = (series, figures)
        return cls(tuple(levels), tuple(servers), cells)

    @property
    def level_texts(self) -> list[str]:
        """Short ones, for an axis."""
        return [f"{level.value:g}" for level in self.levels]

    def name(self, server: int) -> str:
        return name_of(self.servers[server][0])

    def key(self) -> tuple[KeyEntry, ...]:
        return tuple(KeyEntry(self.name(one), one) for one in range(len(self.servers)))

    def load_axis(self) -> Axis:
        label = _AXIS_LABELS[self.levels[0].arrival] if self.levels else "load"
        return place_axis(label, self.level_texts)

    def values(self, value_of: Callable[[SeriesFigures], float | None]) -> Values:
        """Where there is one."""
        found = {place: value_of(figures) for place, (_, figures) in self.cells.items()}
        return {place: value for place, value in found.items() if value is not None}

    def table(self, title: str, columns: Mapping[str, Values]) -> Table:
        """A row a load and server, a column for each of the values."""
        rows = tuple(
            (
                Cell(self.levels[level].text),
                Cell(self.name(server), is_foreign=True),
                *(_cell(values.get((level, server))) for values in columns.values()),
            )
            for level, server in sorted(self.cells)
        )
        return Table(title, ("load", "server", *columns), rows)

    def spoken(self, columns: Mapping[str, Values], unit: str) -> str:
        """What a picture of the values shows, for who cannot see it."""
        said = []
        for server in range(min(len(self.servers), _MAX_SPOKEN)):
            for name, values in columns.items():
                own = [value for (_, of), value in sorted(values.items()) if of == server]
                if own:
                    said.append(f"{self.name(server)}, {name}: {_range(own)} {unit}".rstrip())
        if len(self.servers) > _MAX_SPOKEN:
            said.append("others are in the table")
        return "; ".join(said) + "." if said else "There is nothing to show."


def _range(values: list[float]) -> str:
    """From the first load to the last."""
    first, last = number_text(values[0]), number_text(values[-1])
    return first if len(values) == 1 else f"from {first} to {last}"


def _cell(value: float | None) -> Cell:
    return Cell() if value is None else Cell(numbers=(Number(value, column_text(value)),))
