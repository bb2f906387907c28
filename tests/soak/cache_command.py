"""`python -m tests.soak cache`: random requests through one engine with a page pool that is short.

They share, pin, abort, preempt, evict, flush and ask about the cache (tests/cached_scripts.py), on
the tiny model. Pages and tree are checked every so many steps, some answers against no cache at
all, and the memory of the process must not grow.
"""

import argparse
import json
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.cached_scripts import Play, TinyExecutor

PROGRESS_S = 10.0
CHECK_EVERY = 25
JUDGED_SHARE = 0.02
# Looks at the memory during a run: enough for a median of each fifth.
NUM_LOOKS = 100
# What an allocator may gain on a run without anything being kept.
MAX_GROWTH, SLACK_BYTES = 1.02, 4 * 2**20


class MemoryWatch:
    """Resident bytes of this process, looked at as the work goes on."""

    def __init__(self) -> None:
        self.looks: list[int] = []

    def look(self, share_done: float) -> None:
        """Once for each hundredth of the work."""
        if share_done * NUM_LOOKS >= len(self.looks):
            self.looks.append(resident_bytes())


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def fifths(looks: Sequence[int]) -> tuple[float, float]:
    """The medians of the second and of the last fifth: the first warms up."""
    size = len(looks) // 5
    return statistics.median(looks[size : 2 * size]), statistics.median(looks[-size:])


def is_flat(looks: Sequence[int]) -> bool:
    early, late = fifths(looks)
    return late <= early * MAX_GROWTH + SLACK_BYTES


def run_cache(options: argparse.Namespace) -> int:
    """Prints one JSON object; returns the exit code."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        tiny = TinyExecutor.load(Path(folder) / "model")
        play = Play.of(tiny, seed=options.seed, check_every=CHECK_EVERY, judged_share=JUDGED_SHARE)
        watch = _play(play, num_requests=options.requests)
    for fault in play.judge.verdict.faults:
        sys.stderr.write(f"seed {options.seed}: {fault}\n")
    faults = len(play.judge.verdict.faults)
    summary = {**_summary(play, watch), "seed": options.seed, "faults": faults}
    summary["seconds"] = round(time.monotonic() - started, 1)
    sys.stdout.write(json.dumps(summary) + "\n")
    if not is_flat(watch.looks):
        sys.stderr.write("the memory of the process grew\n")
    return int(bool(faults) or not is_flat(watch.looks))


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)


def _play(play: Play, *, num_requests: int) -> MemoryWatch:
    """Raises: AssertionError where pages, locks or counters contradict each other."""
    watch, printed, number = MemoryWatch(), time.monotonic(), 0
    while play.num_requests < num_requests:
        play.begin(number)
        number += 1
        watch.look(play.num_requests / num_requests)
        if time.monotonic() - printed >= PROGRESS_S:
            printed = time.monotonic()
            sys.stderr.write(f"radixgate: {play.num_requests} of {num_requests} requests\n")
    play.finish()
    play.driver.cache.check_invariants()
    return watch


def _summary(play: Play, watch: MemoryWatch) -> dict[str, object]:
    stats, (early, late) = play.driver.stats, fifths(watch.looks)
    return {
        "requests": play.num_requests,
        "steps": stats.steps,
        "aborted": play.num_aborted,
        "judged_answers": play.judge.verdict.num_answers,
        "ties": play.judge.verdict.num_stops,
        "hit_rate": round(stats.cached_tokens / stats.prompt_tokens, 3),
        "evicted_pages": stats.evicted_pages,
        "flushed_pages": play.num_flushed,
        "most_pinned_pages": play.most_pinned,
        "questions": play.num_questions,
        "preemptions": stats.preemptions + stats.fair_preemptions,
        "recomputed_tokens": stats.recomputed_tokens,
        "rss_mib_early": round(early / 2**20, 1),
        "rss_mib_late": round(late / 2**20, 1),
    }
