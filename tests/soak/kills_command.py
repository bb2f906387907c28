"""`python -m tests.soak kills`: processes that store pages in one cache folder, killed at random
moments while another process reads; and whole runtimes, killed while they write theirs. No page
may ever be a wrong one, and no answer another than without a cache.
"""

import argparse
import asyncio
import dataclasses
import json
import sys
import tempfile
import time
from pathlib import Path

from tests.runtime_kills import DISK_BYTES, RuntimeKills
from tests.tier_kills import Kills


def run_kills(options: argparse.Namespace) -> int:
    """Prints a JSON object a kind of process; returns the exit code."""
    faults = 0
    for num_writers in (1, 2):
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            kills = Kills(Path(folder), seed=options.seed, num_writers=num_writers)
            report = kills.play(options.kills)
        faults += len(report.wrong) + report.num_failures + (report.most_bytes > report.max_bytes)
        _print({"writers": num_writers, **dataclasses.asdict(report)}, options.seed, started)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        runtimes = asyncio.run(
            RuntimeKills(Path(folder), seed=options.seed).play(options.runtime_kills)
        )
    faults += len(runtimes.wrong) + runtimes.failures + (runtimes.most_bytes > DISK_BYTES)
    _print({"runtimes": 1, **dataclasses.asdict(runtimes)}, options.seed, started)
    return int(faults > 0)


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--runtime-kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)


def _print(report: dict[str, object], seed: int, started: float) -> None:
    seconds = round(time.monotonic() - started, 1)
    sys.stdout.write(json.dumps({**report, "seed": seed, "seconds": seconds}) + "\n")
    sys.stdout.flush()
