"""The report of a bench run as Markdown that GitHub renders: the setup first, then tables.

Whatever comes from outside stands in code spans, in which Markdown has no meaning and GitHub links
nobody.
"""

import re
from collections.abc import Iterable, Iterator

from telemetry.bench_oddities import odd_lines
from telemetry.bench_report import (
    BenchReport,
    Cell,
    Table,
    distributions,
    one_line,
    overview,
    ratios,
    setup_rows,
)

_MAX_COMMAND_CHARS = 2000


def markdown_of(report: BenchReport) -> str:
    """The whole page."""
    command = one_line(report.run.command, _MAX_COMMAND_CHARS)
    fence = "`" * max(3, _longest_run(command) + 1)
    lines = ["# Bench", "", f"{fence}sh", command, fence, ""]
    lines += [
        f"* {name}: {code(text)}" for name, text in setup_rows(report.run) if name != "command"
    ]
    lines += ["", *_table(overview(report))]
    if ratios(report).rows:
        lines += [*_table(ratios(report)), "Of times, less is better.", ""]
    lines += _table(distributions(report))
    if odd := odd_lines(report):
        lines += ["## Notes", "", *(f"* {code(line)}" for line in odd), ""]
    return "\n".join(lines)


def code(text: str) -> str:
    """A code span that shows the text as it is. `text` is one line."""
    if not text.strip():
        return "–"
    fence = "`" * (_longest_run(text) + 1)
    pad = " " if text[0] in "` " or text[-1] in "` " else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _table(table: Table) -> Iterator[str]:
    marks = ["---" if index < table.num_names else "---:" for index in range(len(table.head))]
    yield f"## {table.title}"
    yield ""
    yield _row(table.head)
    yield _row(marks)
    for row in table.rows:
        yield _row(map(_cell, row))
    yield ""


def _cell(cell: Cell) -> str:
    """A bar would end the cell, also within a code span."""
    return (code(cell.shown) if cell.is_foreign else cell.shown).replace("|", "\\|")


def _row(texts: Iterable[str]) -> str:
    return f"| {' | '.join(texts)} |"


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
