"""docs/bench.md and docs/workloads.md name what there is: flags, figures, fields."""

import contextlib
import io
import re
import shlex
from dataclasses import fields, replace
from pathlib import Path

import pytest

from gateway.cli import _parser
from telemetry.bench_report import BenchReport, overview
from telemetry.bench_run import (
    BenchRun,
    Failure,
    LoadLevel,
    RequestRecord,
    Round,
    Series,
)
from tests.bench_run_samples import record, run_of, series, two_servers_at_two_loads

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "bench.md").read_text()


def help_of(*command: str) -> str:
    """What --help says of it."""
    written = io.StringIO()
    with contextlib.redirect_stdout(written), contextlib.suppress(SystemExit):
        _parser().parse_args([*command, "--help"])
    return written.getvalue()


def commands(text: str) -> list[list[str]]:
    """Every `radixgate bench` of the code blocks, as a shell would split it."""
    blocks = re.findall(r"```\w*\n(.*?)```", text, flags=re.S)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [shlex.split(line) for line in lines if line.startswith("radixgate bench")]


@pytest.mark.parametrize("page", ["bench.md", "workloads.md"])
def test_every_command_of_a_page_is_understood(page: str) -> None:
    found = commands((DOCS / page).read_text())
    assert len(found) > 2
    for command in found:
        options = _parser().parse_args(command[1:])
        assert options.command == "bench"


def test_every_flag_that_the_pages_name_exists_and_reports_are_all_named() -> None:
    text = PAGE + (DOCS / "workloads.md").read_text()
    helps = [help_of("bench"), help_of("bench", "report"), help_of("bench", "compare")]
    known = set(re.findall(r"--[a-z-]+", " ".join(helps)))
    own = {flag for flag in re.findall(r"`(--[a-z-]+)", text) if not flag.startswith("--enable")}
    assert own - known == set()
    assert {"--json-out", "--markdown-out", "--html-out", "--quiet", "--slo", "--anyway"} <= own


def test_every_column_of_the_report_is_defined() -> None:
    full = two_servers_at_two_loads()
    valid = run_of(series(replace(record(is_valid=True), cacheable_tokens=20)), price_per_hour=1.0)
    heads = {*overview(BenchReport.of(full)).head, *overview(BenchReport.of(valid)).head}
    defined = set(re.findall(r"^\| ([^|]+?) \|", PAGE, flags=re.M))
    shown = {re.sub(r" p50 / p95 / p99 ms", "", head) for head in heads}
    assert shown - defined <= {"load", "server", "requests", "failed"}


@pytest.mark.parametrize(
    "kind",
    [BenchRun, Series, Round, RequestRecord, LoadLevel, Failure],
    ids=lambda one: one.__name__,
)
def test_every_field_of_the_file_is_named(kind: type) -> None:
    section = PAGE.split("### The JSON file")[1]
    assert {one.name for one in fields(kind)} - set(re.findall(r"`(\w+)`", section)) == set()
