"""The command `radixgate bench`: plays a workload on servers that run and says what came of it.

The key, where servers want one, comes from OPENAI_API_KEY: arguments can be seen by others.
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gateway.bench_flags import OptionError, add_load_flags
from gateway.bench_reports import (
    add_output_flags,
    add_report_commands,
    check_outputs,
    run_report_command,
    write_reports,
)
from gateway.load_target import TargetError
from gateway.terminal_text import harmless
from telemetry.bench_json import BenchFileError
from telemetry.bench_run import BenchRun
from telemetry.workload_file import WorkloadFileError

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

EXIT_FAILED, EXIT_UNREADABLE, EXIT_INTERRUPTED = 1, 2, 128 + signal.SIGINT


def add_flags(commands: "Commands") -> None:
    """Of `radixgate bench` and the commands below it."""
    bench = commands.add_parser(
        "bench",
        help="play a workload on servers that run, and measure times and cache hits",
        description="Plays a workload on any OpenAI-compatible server and prints what came of it: "
        "docs/bench.md. A key is taken from OPENAI_API_KEY. Exit code 0: every request was "
        "answered, 1: one was not, 2: a flag or file does not fit, 130: it was interrupted.",
    )
    add_load_flags(bench)
    add_output_flags(bench)
    add_report_commands(bench)


def run_bench_command(options: argparse.Namespace, arguments: Sequence[str]) -> int:
    """Returns the exit code: 0, 1 where a request failed or none could be sent, 2 for flags or a
    file that cannot be used, 130 where it was ended by hand. `arguments` are told in the report."""
    try:
        if options.bench_command is not None:
            return run_report_command(options)
        return _bench(options, arguments)
    except (OptionError, WorkloadFileError, BenchFileError, OSError) as error:
        return _complain(error, EXIT_UNREADABLE)
    except TargetError as error:
        return _complain(error, EXIT_FAILED)
    except KeyboardInterrupt:
        return _complain("interrupted", EXIT_INTERRUPTED)


def _bench(options: argparse.Namespace, arguments: Sequence[str]) -> int:
    # Imported here: every command reads these flags, and none but this needs the client.
    from gateway.bench_options import plan_of
    from gateway.bench_progress import ProgressLine
    from gateway.bench_session import BenchInterrupted, run_bench

    plan = plan_of(options, arguments)
    check_outputs(options)
    with ProgressLine.on_stderr(is_quiet=options.quiet) as progress:
        try:
            run = run_bench(plan, show=progress.show)
        except BenchInterrupted:
            raise KeyboardInterrupt from None
    write_reports(run, options)
    if run.is_interrupted:
        return _complain("interrupted: the report is of what was measured", EXIT_INTERRUPTED)
    if (failure := _first_failure(run)) is not None:
        return _complain(f"a request failed: {failure}", EXIT_FAILED)
    return 0


def _first_failure(run: BenchRun) -> str | None:
    """Of all requests, also of those that warmed up."""
    records = (one for series in run.series for each in series.rounds for one in each.records)
    return next((one.failure.text for one in records if one.failure is not None), None)


def _complain(error: object, code: int) -> int:
    """On one line and without what a terminal would obey, whoever said it."""
    sys.stderr.write(f"radixgate: {harmless(str(error), is_plain=False)}\n")
    return code
