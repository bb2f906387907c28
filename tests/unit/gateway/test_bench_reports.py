"""`radixgate bench report` and `radixgate bench compare`: what was written once is read again."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.bench_flags import OptionError
from gateway.bench_reports import (
    add_output_flags,
    add_report_commands,
    check_outputs,
    run_report_command,
    write_reports,
)
from telemetry.bench_html import html_of
from telemetry.bench_json import BenchFileError, decode_run, encode_run
from telemetry.bench_markdown import markdown_of
from telemetry.bench_report import BenchReport
from telemetry.bench_run import BenchRun, Slo
from tests.bench_run_samples import two_servers_at_two_loads

RUN = two_servers_at_two_loads()


def parsed(*arguments: object) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_output_flags(parser)
    add_report_commands(parser)
    return parser.parse_args(list(map(str, arguments)))


def written(folder: Path, name: str, run: BenchRun = RUN) -> Path:
    path = folder / name
    path.write_bytes(encode_run(run))
    return path


def test_a_run_is_printed_and_written_to_every_file_that_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("json", "markdown", "html")
    flags = [part for name in names for part in (f"--{name}-out", tmp_path / name)]
    write_reports(RUN, parsed(*flags))
    report = BenchReport.of(RUN)
    assert (tmp_path / "json").read_bytes() == encode_run(RUN)
    assert (tmp_path / "markdown").read_text() == markdown_of(report)
    assert (tmp_path / "html").read_text() == html_of(report)
    assert "TTFT p50 / p95 / p99 ms" in capsys.readouterr().out


def test_a_file_is_rendered_again_as_it_was_the_first_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_reports(RUN, parsed("--json-out", tmp_path / "a.json"))
    first = capsys.readouterr().out
    html = tmp_path / "again.html"
    options = parsed("report", tmp_path / "a.json", "--html-out", html)
    assert run_report_command(options) == 0
    assert capsys.readouterr().out == first
    assert html.read_text() == html_of(BenchReport.of(RUN))


def test_flags_before_the_command_hold_for_it(tmp_path: Path) -> None:
    path, page = written(tmp_path, "a.json"), tmp_path / "page.html"
    assert run_report_command(parsed("--html-out", page, "report", path)) == 0
    assert page.exists()


def test_a_file_is_judged_by_other_limits_and_another_price(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, "a.json")
    flags = ("--slo", "ttft=1s,tpot=30ms", "--price-per-hour", "36")
    out = tmp_path / "b.json"
    assert run_report_command(parsed("--json-out", out, "report", path, *flags)) == 0
    said = capsys.readouterr().out
    assert "SLO       ttft=1000ms,tpot=30ms" in said
    assert "price     36 an hour for each server" in said
    found = decode_run(out.read_bytes())
    assert (found.slo, found.price_per_hour) == (Slo(1.0, 0.03), 36.0)


def test_two_files_give_ratios_with_a_caution(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = written(tmp_path, "a.json")
    later = replace(RUN, series=RUN.series[:3], started_at="2027-01-01T00:00:00Z")
    second = written(tmp_path, "b.json", later)
    assert run_report_command(parsed("compare", first, second)) == 0
    said = capsys.readouterr()
    assert "B: ours / A: ours" in said.out
    assert "2027-01-01" in said.err
    assert "only the first file has 4 clients of theirs" in said.err


def test_files_of_different_workloads_are_compared_only_when_told_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = written(tmp_path, "a.json"), written(tmp_path, "b.json", replace(RUN, seed=7))
    assert run_report_command(parsed("compare", *files)) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "seed: 1 and 7" in said.err
    assert run_report_command(parsed("compare", *files, "--anyway")) == 0
    said = capsys.readouterr()
    assert "B: theirs / A: theirs" in said.out
    assert "seed: 1 and 7" in said.err


def test_files_without_a_load_in_common_are_no_pair(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = written(tmp_path, "a.json", replace(RUN, series=RUN.series[:2]))
    second = written(tmp_path, "b.json", replace(RUN, series=RUN.series[2:]))
    assert run_report_command(parsed("compare", first, second)) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "only the second file has 4 clients of ours" in said.err


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("{}")
    with pytest.raises(BenchFileError, match=r"x\.json: not what"):
        run_report_command(parsed("report", path))
    with pytest.raises(FileNotFoundError):
        run_report_command(parsed("report", tmp_path / "none"))


def test_a_path_that_cannot_be_written_is_known_before_the_work(tmp_path: Path) -> None:
    for flag in ("--json-out", "--markdown-out", "--html-out"):
        with pytest.raises(FileNotFoundError):
            check_outputs(parsed(flag, tmp_path / "none" / "out"))
        with pytest.raises(OptionError, match=f"{flag}: .* is no file that can be written"):
            check_outputs(parsed(flag, tmp_path))


def test_what_cannot_be_written_takes_nothing_else_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    options = parsed("--json-out", tmp_path, "--html-out", page)
    with pytest.raises(IsADirectoryError):
        write_reports(RUN, options)
    assert page.read_text() == html_of(BenchReport.of(RUN))
    assert "TTFT p50 / p95 / p99 ms" in capsys.readouterr().out


def test_no_file_is_written_over_another(tmp_path: Path) -> None:
    path = written(tmp_path, "a.json")
    with pytest.raises(OptionError, match="--html-out: .* is already the file that is read"):
        run_report_command(parsed("report", path, "--html-out", path))
    assert path.read_bytes() == encode_run(RUN)
    same = tmp_path / "b"
    with pytest.raises(OptionError, match="--html-out: .* is already that of --markdown-out"):
        check_outputs(parsed("--markdown-out", same, "--html-out", same))


def test_what_a_terminal_would_obey_is_shown_instead(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    evil = replace(RUN, command="bench \x1b[2J")
    write_reports(evil, parsed())
    assert "\x1b" not in capsys.readouterr().out
    monkeypatch.setattr(type(sys.stdout), "encoding", "ascii", raising=False)
    only_some = replace(RUN, series=RUN.series[:2], command="über")
    write_reports(only_some, parsed())
    shown = capsys.readouterr().out
    assert shown.isascii()
    assert "\\xfcber" in shown
