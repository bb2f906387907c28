"""Whatever a bench run holds, its reports can be read: well-formed, complete, without NaN."""

import re
import xml.etree.ElementTree as ET

from hypothesis import given, settings

from telemetry.bench_figures import figures_of
from telemetry.bench_html import html_of
from telemetry.bench_json import decode_run, encode_run
from telemetry.bench_markdown import markdown_of
from telemetry.bench_report import BenchReport, overview
from telemetry.bench_run import BenchRun
from telemetry.bench_text import report_lines
from tests.bench_run_samples import runs

HTML = "{http://www.w3.org/1999/xhtml}"
SVG = "{http://www.w3.org/2000/svg}"
MANY = settings(max_examples=25, derandomize=True, deadline=None)


@given(run=runs())
@MANY
def test_a_page_is_well_formed_and_says_what_each_picture_is(run: BenchRun) -> None:
    page = ET.fromstring(html_of(BenchReport.of(run)))
    ids = [one.attrib["id"] for one in page.iter() if "id" in one.attrib]
    assert len(ids) == len(set(ids))
    figures = list(page.iter(f"{HTML}figure"))
    for figure in figures:
        picture = figure.find(f"{SVG}svg")
        assert picture is not None
        assert set(picture.attrib["aria-labelledby"].split()) <= set(ids)
        assert picture.findtext(f"{SVG}title")
        assert picture.findtext(f"{SVG}desc")
        assert figure.find(f".//{HTML}tbody/{HTML}tr") is not None
    assert bool(figures) == bool(run.series)


@given(run=runs())
@MANY
def test_no_number_in_a_page_is_none(run: BenchRun) -> None:
    page = html_of(BenchReport.of(run))
    drawn = re.findall(r' (?:d|x|y|transform|value)="([^"]*)"', page)
    assert not [one for one in drawn if re.search("nan|inf|None", one, flags=re.I)]


@given(run=runs())
@MANY
def test_a_page_runs_nothing_and_fetches_nothing(run: BenchRun) -> None:
    page = ET.fromstring(html_of(BenchReport.of(run)))
    names = {one.tag.split("}")[1] for one in page.iter()}
    assert names.isdisjoint({"script", "link", "img", "iframe", "object", "a", "use", "image"})
    attributes = {name for one in page.iter() for name in one.attrib}
    assert not {name for name in attributes if name.startswith("on")}
    assert attributes.isdisjoint({"href", "src", "style"})


@given(run=runs())
@MANY
def test_a_file_gives_the_same_run_back(run: BenchRun) -> None:
    assert decode_run(encode_run(run)) == run


@given(run=runs())
@MANY
def test_every_line_of_a_table_has_as_many_cells_as_its_head(run: BenchRun) -> None:
    """Bars that do not end a cell are behind a backslash."""
    num_cells = 0
    for line in markdown_of(BenchReport.of(run)).split("\n"):
        cells = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        assert not cells or not num_cells or cells == num_cells, line
        num_cells = cells


@given(run=runs())
@MANY
def test_terminal_and_page_say_the_same_numbers(run: BenchRun) -> None:
    report = BenchReport.of(run)
    lines = report_lines(report, width=10_000)
    body = ET.fromstring(html_of(report))
    rows = body.findall(f".//{HTML}section/{HTML}div/{HTML}table/{HTML}tbody/{HTML}tr")
    assert len(rows) >= len(run.series)
    for row, cells in zip(rows, overview(report).rows, strict=False):
        shown = [" ".join("".join(cell.itertext()).split()) for cell in row]
        assert shown == [" ".join(cell.shown.split()) for cell in cells]
        assert any(all(text in line for text in shown[2:]) for line in lines)


@given(run=runs())
@MANY
def test_every_failed_request_is_in_a_report(run: BenchRun) -> None:
    report = BenchReport.of(run)
    num_failed = sum(figures_of(one).num_failed for one in run.series)
    column = overview(report).head.index("failed") if run.series else 0
    shown = sum(int(row[column].numbers[0].value) for row in overview(report).rows)
    assert shown == num_failed
