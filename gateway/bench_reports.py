"""Where the reports of `radixgate bench` go, and the commands that render them again from files:
`radixgate bench report` and `radixgate bench compare`. Called by gateway.bench_command.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.bench_flags import OptionError, price, slo_of
from gateway.terminal_text import harmless
from telemetry.bench_json import BenchFileError, decode_run, encode_run

if TYPE_CHECKING:
    from telemetry.bench_run import BenchRun

# Where nobody says how wide the output is.
DEFAULT_WIDTH = 120
EXIT_DIFFERENT = 2
# Characters of our own, for a terminal that has none beyond ASCII.
_PLAIN = {"–": "-", "…": "..."}


def add_output_flags(parser: argparse.ArgumentParser) -> None:
    """Of a run."""
    add = parser.add_argument
    add("--json-out", type=Path, metavar="FILE", help="every request and all figures")
    _add_page_flags(parser)
    add("--quiet", action="store_true", help="say nothing of the progress")


def add_report_commands(parser: argparse.ArgumentParser) -> None:
    """Beside a run, which has no command of its own. Their values replace those of the flags that
    stand before the command."""
    kinds = parser.add_subparsers(dest="bench_command", metavar="COMMAND")
    report = kinds.add_parser(
        "report",
        help="render a run again",
        description="Renders a file of --json-out again: as text, and where flags say.",
        argument_default=argparse.SUPPRESS,
    )
    add = report.add_argument
    add("file", type=Path, metavar="FILE.json")
    add("--slo", type=slo_of, metavar="LIST", help="other limits than those of the run")
    add("--price-per-hour", type=price, metavar="AMOUNT", help="another one than the run's")
    _add_page_flags(report)
    ratio = kinds.add_parser(
        "compare",
        help="ratios of two runs",
        description="Ratios of the second file to the first. Exit code 2 where they measured "
        "different things.",
        argument_default=argparse.SUPPRESS,
    )
    ratio.add_argument("first", type=Path, metavar="A.json")
    ratio.add_argument("second", type=Path, metavar="B.json")
    ratio.add_argument("--anyway", action="store_true", default=False, help="also then")


def check_outputs(options: argparse.Namespace) -> None:
    """A path that cannot be written is told before the work, not after it, and so is one that would
    be written twice or over the file that is read. Raises: OSError, OptionError."""
    source: Path | None = getattr(options, "file", None)
    taken = {} if source is None else {source.resolve(): "the file that is read"}
    for name in ("json_out", "markdown_out", "html_out"):
        path: Path | None = getattr(options, name, None)
        if path is None:
            continue
        flag = f"--{name.replace('_', '-')}"
        path.touch()
        if path.is_dir() or not os.access(path, os.W_OK):
            raise OptionError(f"{flag}: {path} is no file that can be written")
        if (other := taken.get(path.resolve())) is not None:
            raise OptionError(f"{flag}: {path} is already {other}")
        taken[path.resolve()] = f"that of {flag}"


def write_reports(run: "BenchRun", options: argparse.Namespace) -> None:
    """The files that the flags name, and the lines on standard output: what cannot be written
    takes nothing else with it. Raises: OSError, after the rest is done."""
    # Imported here and below: every command of radixgate reads the flags of this module.
    from telemetry.bench_html import html_of
    from telemetry.bench_markdown import markdown_of
    from telemetry.bench_report import BenchReport
    from telemetry.bench_text import report_lines

    report = BenchReport.of(run)
    contents: dict[str, Callable[[], bytes]] = {
        "json_out": lambda: encode_run(run),
        "markdown_out": lambda: markdown_of(report).encode(),
        "html_out": lambda: html_of(report).encode(),
    }
    failures: list[OSError] = []
    for name, content in contents.items():
        path: Path | None = getattr(options, name, None)
        if path is not None:
            try:
                path.write_bytes(content())
            except OSError as error:
                failures.append(error)
    _print(report_lines(report, width=_width()))
    for failure in failures:
        raise failure


def run_report_command(options: argparse.Namespace) -> int:
    """Of `report` and `compare`; the exit code. Raises: OSError, BenchFileError."""
    if options.bench_command == "report":
        run = _read(options.file)
        if (slo := getattr(options, "slo", None)) is not None:
            run = replace(run, slo=slo)
        if (amount := getattr(options, "price_per_hour", None)) is not None:
            run = replace(run, price_per_hour=amount)
        check_outputs(options)
        write_reports(run, options)
        return 0
    return _compare(_read(options.first), _read(options.second), is_forced=options.anyway)


def _compare(first: "BenchRun", second: "BenchRun", *, is_forced: bool) -> int:
    from telemetry.bench_pairs import cautions, differences, pair_runs
    from telemetry.bench_report import overview, ratios
    from telemetry.bench_text import table_lines

    different = differences(first, second)
    if different and not is_forced:
        _complain(["the files do not measure the same (--anyway compares them):", *different])
        return EXIT_DIFFERENT
    paired = pair_runs(first, second)
    if not paired.report.run.series:
        _complain(["the files have no load of one server in common:", *paired.unpaired])
        return EXIT_DIFFERENT
    width = _width()
    lines = table_lines(overview(paired.report), width=width)
    lines += ["", "ratios of B to A (of times, less is better)"]
    _print([*lines, *table_lines(ratios(paired.report), width=width)])
    _complain([*different, *cautions(first, second), *paired.unpaired])
    return 0


def _read(path: Path) -> "BenchRun":
    try:
        return decode_run(path.read_bytes())
    except BenchFileError as error:
        raise BenchFileError(f"{path}: {error}") from None


def _add_page_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--markdown-out", type=Path, metavar="FILE", help="the report as Markdown")
    add("--html-out", type=Path, metavar="FILE", help="the report as a page with plots")


def _print(lines: Iterable[str]) -> None:
    encoding = sys.stdout.encoding or "ascii"
    is_plain = not encoding.lower().replace("-", "").startswith("utf8")
    ours = str.maketrans(_PLAIN if is_plain else {})
    shown = (harmless(line.translate(ours), is_plain=is_plain) for line in lines)
    sys.stdout.write("\n".join(shown) + "\n")


def _complain(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stderr.write(f"radixgate: {harmless(line, is_plain=True)}\n")


def _width() -> int:
    if not sys.stdout.isatty():
        return DEFAULT_WIDTH
    return shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns
