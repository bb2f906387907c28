"""The report of a bench run as one HTML page: no script, nothing from elsewhere, well-formed XML.

Whatever comes from outside is escaped here or in telemetry.svg_plot. Every number stands in a
`data` element, whose value is the number as it was computed.
"""

from collections.abc import Iterable, Iterator, Sequence

from telemetry.bench_grid import Grid, KeyEntry, Picture
from telemetry.bench_oddities import odd_lines
from telemetry.bench_page_style import style_sheet
from telemetry.bench_plots import load_pictures
from telemetry.bench_report import (
    BenchReport,
    Cell,
    Number,
    Table,
    distributions,
    name_of,
    one_line,
    overview,
    ratios,
    setup_rows,
)
from telemetry.bench_samples import Budget, level_pictures
from telemetry.svg_axis import number_text
from telemetry.svg_plot import draw, escaped, swatch

# Loads whose single requests are drawn; a sweep over more shows the first, the last, and between.
MAX_DETAILED = 8
# Six digits are more than any of them is measured to.
_VALUE_FORM = ".6g"


def html_of(report: BenchReport) -> str:
    """The whole page."""
    parts = (_head_part, _results, _load_part, _details, _setup_part)
    body = "\n".join(line for part in parts for line in part(report))
    title = escaped(f"Bench: {report.run.workload.name}")
    return (
        '<!DOCTYPE html>\n<html lang="en" xmlns="http://www.w3.org/1999/xhtml"><head>'
        '<meta charset="utf-8"/>'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\"/>"
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>{title}</title><style>{style_sheet()}</style></head>\n"
        f"<body><main>\n{body}\n</main></body></html>\n"
    )


def _head_part(report: BenchReport) -> Iterator[str]:
    run = report.run
    yield f"<h1>{escaped(f'Bench: {name_of(run.workload.name)}')}</h1>"
    yield f'<p class="soft">{escaped(one_line(run.workload.description))}</p>'
    yield _tiles(report)
    if odd := odd_lines(report):
        yield "<h2>Before you believe it</h2>"
        yield f'<ul class="odd">{_items(odd)}</ul>'


def _setup_part(report: BenchReport) -> Iterator[str]:
    (_, command), *rows = setup_rows(report.run)
    yield f"<section><h2>How it was measured</h2><pre>{escaped(command)}</pre>"
    pairs = "".join(
        f"<div><dt>{escaped(name)}</dt><dd>{escaped(text)}</dd></div>" for name, text in rows
    )
    yield f"<dl>{pairs}</dl></section>"


def _tiles(report: BenchReport) -> str:
    """What each server did at the load at which its throughput was highest."""
    grid = Grid.of(report)
    items = []
    for server in range(len(grid.servers)):
        own = [(level, one) for (level, of), one in grid.cells.items() if of == server]
        level, (_, best) = max(own, key=lambda pair: pair[1][1].output_tok_s)
        shown = _data(Number(best.output_tok_s, number_text(best.output_tok_s)))
        where = f"output tok/s, {grid.name(server)}, {grid.levels[level].text}"
        items.append(f'<li><strong>{shown}</strong><span class="soft">{escaped(where)}</span></li>')
    return f'<ul class="tiles">{"".join(items)}</ul>' if items else ""


def _results(report: BenchReport) -> Iterator[str]:
    yield "<section><h2>Results</h2>"
    yield _table(overview(report), "A row for each load and server")
    if ratios(report).rows:
        yield "<h2>Ratios</h2>"
        yield _table(
            ratios(report), "To the first server at the same load; of times, less is better"
        )
    yield "</section>"


def _load_part(report: BenchReport) -> Iterator[str]:
    yield '<section><h2>Over the load</h2><div class="plots">'
    yield from map(_figure, load_pictures(report))
    yield "</div></section>"


def _details(report: BenchReport) -> Iterator[str]:
    grid = Grid.of(report)
    chosen = _spread(len(grid.levels), MAX_DETAILED)
    num_series = sum(level in chosen for level, _ in grid.cells)
    budget = Budget.of(num_series)
    yield "<section><h2>Requests</h2>"
    if len(chosen) < len(grid.levels):
        yield f"<p>Of {len(grid.levels)} loads {len(chosen)} are drawn.</p>"
    for level in chosen:
        is_open = ' open="open"' if level == chosen[-1] else ""
        figures = "".join(map(_figure, level_pictures(grid, level, budget)))
        yield f"<details{is_open}><summary>{escaped(grid.levels[level].text)}</summary>"
        yield f'<div class="plots">{figures}</div></details>'
    yield "<details><summary>All latencies</summary>"
    yield _table(distributions(report), "In ms, of answered requests; lateness of all")
    yield "</details></section>"


def _spread(num: int, max_chosen: int) -> list[int]:
    """Evenly spaced places, the first and the last among them."""
    if num <= max_chosen:
        return list(range(num))
    return [round(step * (num - 1) / (max_chosen - 1)) for step in range(max_chosen)]


def _figure(picture: Picture) -> str:
    plot = picture.plot
    caption = f"<p>{escaped(picture.caption)}</p>" if picture.caption else ""
    return (
        f"<figure><figcaption><h3>{escaped(plot.title)}</h3></figcaption>{draw(plot)}"
        f'<ul class="key">{"".join(map(_key_item, picture.key))}</ul>'
        f'<div class="soft">{caption}</div>'
        f"<details><summary>Numbers</summary>{_table(picture.table, plot.title)}</details></figure>"
    )


def _key_item(entry: KeyEntry) -> str:
    return f"<li>{swatch(entry.color, entry.stroke)}{escaped(entry.text)}</li>"


def _table(table: Table, caption: str) -> str:
    label = escaped(table.title)
    kinds = [' class="name"' if index < table.num_names else "" for index in range(len(table.head))]
    head = "".join(
        f'<th scope="col"{kind}>{escaped(text)}</th>'
        for kind, text in zip(kinds, table.head, strict=True)
    )
    rows = "".join(f"<tr>{_row(row, table.num_names)}</tr>" for row in table.rows)
    return (
        f'<div class="scroll" role="group" aria-label="{label}" tabindex="0"><table>'
        f"<caption>{escaped(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div>"
    )


def _row(row: Sequence[Cell], num_names: int) -> str:
    names = (f'<th scope="row">{_cell(cell)}</th>' for cell in row[:num_names])
    return "".join((*names, *(f"<td>{_cell(cell)}</td>" for cell in row[num_names:])))


def _cell(cell: Cell) -> str:
    return " / ".join(map(_data, cell.numbers)) or escaped(cell.shown)


def _data(number: Number) -> str:
    return f'<data value="{number.value:{_VALUE_FORM}}">{escaped(number.text)}</data>'


def _items(texts: Iterable[str]) -> str:
    return "".join(f"<li>{escaped(text)}</li>" for text in texts)
