"""The report of a bench run as lines for a terminal: plain text, unescaped."""

from collections.abc import Iterator, Sequence

from telemetry.bench_oddities import odd_lines
from telemetry.bench_report import BenchReport, Table, overview, ratios, setup_rows

_GAP = "  "
_NAME_WIDTH = 9


def report_lines(report: BenchReport, *, width: int) -> list[str]:
    """What was measured, the results, ratios where there are several servers, what was odd. A
    table that does not fit into `width` is continued below itself."""
    lines = [f"{name:<{_NAME_WIDTH}} {text}" for name, text in setup_rows(report.run)]
    lines += ["", *table_lines(overview(report), width=width)]
    ratio_table = ratios(report)
    if ratio_table.rows:
        lines += ["", "ratios (of times, less is better)"]
        lines += table_lines(ratio_table, width=width)
    if odd := odd_lines(report):
        lines += ["", *(f"note: {line}" for line in odd)]
    return lines


def table_lines(table: Table, *, width: int) -> list[str]:
    """Names to the left, numbers to the right; each part repeats the names."""
    columns = list(zip(*_texts(table), strict=True))
    lines: list[str] = []
    for part in _parts([_column_width(column) for column in columns], table.num_names, width):
        if lines:
            lines.append("")
        chosen = [columns[index] for index in part]
        widths = [_column_width(column) for column in chosen]
        for row in zip(*chosen, strict=True):
            shown = (
                text.ljust(size) if index < table.num_names else text.rjust(size)
                for index, (text, size) in enumerate(zip(row, widths, strict=True))
            )
            lines.append(_GAP.join(shown).rstrip())
    return lines


def _texts(table: Table) -> list[Sequence[str]]:
    return [table.head, *([cell.shown for cell in row] for row in table.rows)]


def _column_width(column: Sequence[str]) -> int:
    return max(map(len, column))


def _parts(widths: Sequence[int], num_names: int, width: int) -> Iterator[list[int]]:
    """Columns that stand side by side: at least one beside the names."""
    names = list(range(num_names))
    taken = sum(widths[index] + len(_GAP) for index in names)
    part, used = list(names), taken
    for index in range(num_names, len(widths)):
        size = widths[index] + len(_GAP)
        if len(part) > num_names and used + size - len(_GAP) > width:
            yield part
            part, used = list(names), taken
        part.append(index)
        used += size
    yield part
