"""`python -m tests.soak kills`: processes that store pages in one cache folder, killed at random
moments while another process reads. No page may ever be a wrong one.
"""

import argparse
import dataclasses
import json
import sys
import tempfile
import time
from pathlib import Path

from tests.tier_kills import Kills


def run_kills(options: argparse.Namespace) -> int:
    """Prints one JSON object a number of writers; returns the exit code."""
    faults = 0
    for num_writers in (1, 2):
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            kills = Kills(Path(folder), seed=options.seed, num_writers=num_writers)
            report = kills.play(options.kills)
        faults += len(report.wrong) + report.num_failures + (report.most_bytes > report.max_bytes)
        summary = {"writers": num_writers, **dataclasses.asdict(report), "seed": options.seed}
        summary["seconds"] = round(time.monotonic() - started, 1)
        sys.stdout.write(json.dumps(summary) + "\n")
    return int(faults > 0)


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
