"""The command `radixgate bench`: plays a workload on a server that runs and says what came of it.

The key, where the server wants one, comes from OPENAI_API_KEY: arguments can be seen by others.
"""

import argparse
import json
import os
import signal
import sys

from gateway.cache_picture import harmless
from gateway.load_client import Target, TargetError, first_model, play, tells_token_ids
from telemetry.load_report import LoadReport, PlayedTurn, make_report, turn_json
from telemetry.workload_file import WorkloadFileError, read_workload
from telemetry.workloads import make_scripts, num_users

KEY_VARIABLE = "OPENAI_API_KEY"
EXIT_FAILED, EXIT_UNREADABLE = 1, 2


def run_bench_command(options: argparse.Namespace) -> int:
    """Returns the exit code: 0, 1 where a request failed or none could be sent, 2 for a file that
    cannot be used."""
    try:
        return _bench(options)
    except (WorkloadFileError, OSError) as error:
        return _complain(error, EXIT_UNREADABLE)
    except TargetError as error:
        return _complain(error, EXIT_FAILED)
    except KeyboardInterrupt:
        return _complain("interrupted", 128 + signal.SIGINT)


def _bench(options: argparse.Namespace) -> int:
    workload = read_workload(options.workload)
    scripts = make_scripts(workload, seed=options.seed)
    target = Target.of(options.url, os.environ.get(KEY_VARIABLE, "").strip() or None)
    if options.json_out is not None:
        options.json_out.touch()  # a bad path is told before the work, not after it
    model = options.model or first_model(target)
    wants_ids = tells_token_ids(target, model)
    num_clients = min(options.concurrency or num_users(workload), len(scripts))
    load = play(
        target,
        model,
        scripts=scripts,
        num_clients=num_clients,
        max_requests=options.requests,
        wants_ids=wants_ids,
    )
    report = make_report(load.turns, wall_s=load.wall_s, num_unsent=load.num_unsent)
    said = {
        "workload": options.workload.name,
        "seed": workload.seed if options.seed is None else options.seed,
        "url": options.url,
        "model": model,
        "clients": num_clients,
    }
    _print_report(said, report)
    if options.json_out is not None:
        options.json_out.write_text(_as_json(said, report, load.turns), encoding="utf-8")
    if report.first_failure is not None:
        return _complain(f"a request failed: {report.first_failure}", EXIT_FAILED)
    return 0


def _print_report(said: dict[str, object], report: LoadReport) -> None:
    lines = [f"{name:<10} {_shown(value)}" for name, value in said.items()]
    sys.stdout.write("\n".join([*lines, *report.lines()]) + "\n")


def _as_json(said: dict[str, object], report: LoadReport, turns: tuple[PlayedTurn, ...]) -> str:
    found = {**said, "report": report.as_json(), "requests": list(map(turn_json, turns))}
    return json.dumps(found, indent=1) + "\n"


def _complain(error: object, code: int) -> int:
    sys.stderr.write(f"radixgate: {_shown(error)}\n")
    return code


def _shown(value: object) -> str:
    """What servers and files say, on one line and without what a terminal would obey."""
    return harmless(str(value), is_plain=False)
