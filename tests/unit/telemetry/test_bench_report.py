"""The tables of a bench report and its forms: terminal, Markdown, HTML."""

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from telemetry.bench_html import html_of
from telemetry.bench_json import encode_run
from telemetry.bench_markdown import code, markdown_of
from telemetry.bench_report import BenchReport, Cell, Table, distributions, overview, ratios
from telemetry.bench_run import BenchRun, Round
from telemetry.bench_text import report_lines, table_lines
from tests.bench_run_samples import failed, record, run_of, series, two_servers_at_two_loads

HTML = "{http://www.w3.org/1999/xhtml}"


def column(report: BenchReport, name: str) -> list[str]:
    table = overview(report)
    return [row[table.head.index(name)].shown for row in table.rows]


def page_of(run: BenchRun) -> ET.Element:
    return ET.fromstring(html_of(BenchReport.of(run)))


def test_a_row_says_what_a_server_did_at_a_load() -> None:
    report = BenchReport.of(two_servers_at_two_loads())
    assert column(report, "load") == ["1 client", "1 client", "4 clients", "4 clients"]
    assert column(report, "server") == ["ours", "theirs", "ours", "theirs"]
    assert column(report, "failed") == ["0", "1", "0", "1"]
    assert column(report, "TTFT p50 / p95 / p99 ms")[:2] == ["100 / 100 / 100", "200 / 200 / 200"]
    assert column(report, "output tok/s") == ["7.50", "3.75", "7.50", "3.75"]
    assert column(report, "good") == ["100%", "75.0%", "0%", "0%"]
    assert column(report, "hit rate") == ["40.0%"] * 4


def test_percentiles_stand_in_their_order() -> None:
    times = [0.1] * 50 + [0.15] * 42 + [0.2] * 5 + [0.4] * 3
    report = BenchReport.of(run_of(series(*(record(ttft_s=one) for one in times))))
    assert column(report, "TTFT p50 / p95 / p99 ms") == ["100 / 200 / 400"]


def test_the_cost_of_a_million_tokens_is_the_price_of_the_time_that_they_took() -> None:
    """3.6 an hour is 0.001 a second: 7.5 tokens a second are 133.33 for a million."""
    report = BenchReport.of(two_servers_at_two_loads())
    assert column(report, "cost / M output")[:2] == ["133", "267"]
    # 40 tokens of prompt and 5 of output in each of three requests.
    assert column(report, "cost / M total")[0] == "14.8"


def test_a_column_that_nobody_has_a_figure_for_is_left_out() -> None:
    head = overview(BenchReport.of(run_of(series(record(cached_tokens=None))))).head
    assert {"good", "good/s", "hit rate", "cost / M output", "valid"}.isdisjoint(head)
    some = run_of(series(record(cached_tokens=None)), series(record(), label="theirs"))
    assert column(BenchReport.of(some), "hit rate") == ["–", "40.0%"]


def test_ratios_are_to_the_first_server_at_the_same_load_with_the_spread_of_rounds() -> None:
    run = two_servers_at_two_loads()
    table = ratios(BenchReport.of(run))
    assert [row[1].shown for row in table.rows] == ["theirs / ours"] * 2
    assert table.rows[0][table.head.index("TTFT p50")].shown == "2.00"
    ours, theirs = run.series[:2]
    slower = Round(2, 9.0, 2.0, (record(ttft_s=0.3),))
    both = run_of(
        replace(ours, rounds=(*ours.rounds, replace(slower, records=(record(ttft_s=0.1),)))),
        replace(theirs, rounds=(*theirs.rounds, slower)),
    )
    table = ratios(BenchReport.of(both))
    assert table.rows[0][table.head.index("TTFT p50")].shown == "2.00 (2.00 – 3.00)"
    assert ratios(BenchReport.of(run_of(ours))).rows == ()


def test_every_latency_is_there_in_full() -> None:
    one = series(record(ttft_s=0.1), record(ttft_s=0.3), failed())
    rows = distributions(BenchReport.of(run_of(one))).rows
    shown = {row[2].shown: [cell.shown for cell in row[3:]] for row in rows}
    assert list(shown) == ["TTFT", "ITL", "TPOT", "E2E", "sent late"]
    assert shown["TTFT"] == ["2", "200", "100", "300", "300", "300", "300"]
    assert shown["ITL"][0] == "8"
    assert shown["sent late"][0] == "3"


def test_a_table_that_is_too_wide_goes_on_below_itself() -> None:
    rows = tuple((Cell(f"row{n}"), Cell("12345678"), Cell("12345678")) for n in range(2))
    table = Table("t", ("name", "first", "second"), rows, num_names=1)
    wide = ["name     first    second", "row0  12345678  12345678", "row1  12345678  12345678"]
    narrow = [
        *("name     first", "row0  12345678", "row1  12345678", ""),
        *("name    second", "row0  12345678", "row1  12345678"),
    ]
    assert table_lines(table, width=24) == wide
    assert table_lines(table, width=23) == narrow
    assert table_lines(table, width=1) == narrow


def test_the_terminal_says_setup_results_ratios_and_what_was_odd() -> None:
    lines = report_lines(BenchReport.of(two_servers_at_two_loads()), width=400)
    text = "\n".join(lines)
    assert lines[0] == "command   radixgate bench --workload chat"
    assert "client    a processor, 2 processors, Linux" in lines
    assert "server    theirs: tiny at http://theirs/v1" in lines
    assert text.count("1 client   ") == 3
    assert "ratios (of times, less is better)" in lines
    odd = "note: 1 client, theirs: 1 of 4 requests: another status than 200 (busy)"
    assert odd in lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "`plain`"),
        ("a`b", "``a`b``"),
        ("`a``", "``` `a`` ```"),
        (" ", "–"),
        ("@you <b> [x](y)", "`@you <b> [x](y)`"),
    ],
)
def test_text_from_outside_means_nothing_in_markdown(text: str, shown: str) -> None:
    assert code(text) == shown


def test_markdown_begins_with_the_command_and_the_machine() -> None:
    lines = markdown_of(BenchReport.of(two_servers_at_two_loads())).splitlines()
    assert lines[2:5] == ["```sh", "radixgate bench --workload chat", "```"]
    assert "* client: `a processor, 2 processors, Linux`" in lines
    assert "| --- | --- | ---: |" in "\n".join(lines)
    assert [line for line in lines if line.startswith("| 1 client | `ours` | 3 | 0 | 100 / ")]


def test_a_label_cannot_end_a_cell_or_a_fence() -> None:
    run = replace(run_of(series(record(), label="a|b\nc")), command="x ``` y")
    text = markdown_of(BenchReport.of(run))
    assert "| `a\\|b c` |" in text
    assert "````sh\nx ``` y\n````" in text
    assert "* server: `a|b c: tiny at http://a|b c/v1`" in text


def test_the_numbers_of_the_page_are_those_of_the_file() -> None:
    run = two_servers_at_two_loads()
    figures = json.loads(encode_run(run))["figures"]
    rows = page_of(run).findall(f".//{HTML}section/{HTML}div/{HTML}table/{HTML}tbody/{HTML}tr")
    names = list(overview(BenchReport.of(run)).head)
    assert len(rows) == len(figures) + 2
    for row, found in zip(rows, figures, strict=False):
        values = [[float(one.attrib["value"]) for one in cell.iter(f"{HTML}data")] for cell in row]
        shown = dict(zip(names, values, strict=True))
        ttft = [found["ttft"][name] * 1e3 for name in ("p50", "p95", "p99")]
        assert shown["TTFT p50 / p95 / p99 ms"] == pytest.approx(ttft, rel=1e-5)
        for name, key in (
            ("output tok/s", "output_tok_s"),
            ("requests", "num_requests"),
            ("good/s", "goodput_per_s"),
            ("cost / M total", "total_cost"),
        ):
            assert shown[name] == pytest.approx([found[key]], rel=1e-5)
        assert shown["hit rate"] == pytest.approx([found["hit_rate"] * 100], rel=1e-5)


def test_the_page_says_how_it_was_measured() -> None:
    page = page_of(two_servers_at_two_loads())
    assert [one.text for one in page.iter(f"{HTML}pre")] == ["radixgate bench --workload chat"]
    said = {"".join(one.itertext()) for one in page.iter(f"{HTML}dd")}
    assert {"a processor, 2 processors, Linux", "theirs: tiny at http://theirs/v1"} <= said
    assert "".join(page.itertext()).count("prompts of 40 tokens") == 2


def titles(page: ET.Element) -> list[str]:
    return [str(one.text).partition(":")[0] for one in page.iter(f"{HTML}h3")]


def test_a_sweep_has_all_pictures_and_each_load_its_own() -> None:
    page = page_of(two_servers_at_two_loads())
    over_load = ["TTFT", "TPOT", "E2E", "Throughput", "Latency and throughput"]
    each = ["TTFT", "ITL", "TTFT over time"]
    assert titles(page) == [*over_load, "Goodput", "Hit rate", *each, *each]
    loads = [one.find(f"{HTML}summary") for one in page.findall(f".//{HTML}section/{HTML}details")]
    assert [one.text for one in loads if one is not None] == [
        "1 client",
        "4 clients",
        "All latencies",
    ]


def test_one_load_has_bars_of_percentiles_and_no_curve() -> None:
    page = page_of(run_of(series(record()), series(record(), label="theirs")))
    assert "Latency and throughput" not in titles(page)
    assert "Goodput" not in titles(page)
    bars = [one for one in page.iter() if one.attrib.get("class", "").startswith("bar")]
    assert len(bars) == 2 * (3 * 3 + 1 + 1)


def test_a_page_of_failures_only_says_so_and_draws_them() -> None:
    run = run_of(series(failed(), failed(1.0)))
    page = page_of(run)
    assert titles(page) == ["Throughput", "TTFT over time"]
    (cross,) = [one for one in page.iter() if one.attrib.get("class") == "cross c0"]
    assert cross.attrib["d"].count("M") == 2
    assert "2 of 2 requests: another status than 200 (busy)" in html_of(BenchReport.of(run))


def test_a_page_of_ten_thousand_requests_is_small_and_says_what_it_leaves_out() -> None:
    records = [record(at / 10, ttft_s=0.1 + at % 97 / 1e3, tokens=20) for at in range(2_500)]
    found = [series(*records, label=label, clients=n) for n in (1, 8) for label in ("a", "b")]
    page = html_of(BenchReport.of(run_of(*found)))
    assert len(page.encode()) < 400_000
    assert "Drawn at 150 evenly spaced ranks of up to 2,500 values." in page
    assert "Not all are drawn" in page
    dots = re.findall(r'class="dots c\d" d="([^"]*)"', page)
    assert [one.count("M") for one in dots] == [1400] * 4


def test_the_page_works_in_light_and_dark_and_allows_nothing_from_elsewhere() -> None:
    page = html_of(BenchReport.of(run_of(series(record()))))
    assert "prefers-color-scheme: dark" in page
    assert "default-src 'none'" in page
    assert not re.findall(r"url\(|@import|https?://(?!www\.w3\.org|ours)", page)
