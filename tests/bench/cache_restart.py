"""What a restart costs with a lower tier: `python -m tests.bench.cache_restart`.

A server computes a prefix of about 1,400 tokens, writes it, and ends. The next one is asked
something unrelated, then a question behind that prefix, then one behind a prefix that is new.
Prints the times to first token of both, with the disk tier and with Redis, over several restarts.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from tests.bench.processor import ProcessorTimes
from tests.bench.restored import (
    Pair,
    ask_and_store,
    judge,
    measure_pair,
    tiered_product,
    two_questions,
    warm_up,
)
from tests.bench.servers import Contender, running
from tests.bench.single_bench import run_single
from tests.valkey_server import ValkeyServer

MAX_RATIO = 0.15
TIERS = ("disk", "redis")


@contextmanager
def tiered_server(tier: str) -> Iterator[Contender]:
    """A server with that tier, which outlives it."""
    if tier == "disk":
        with tempfile.TemporaryDirectory() as folder:
            yield tiered_product(RADIXGATE_CACHE_DIR=folder)
        return
    valkey = ValkeyServer()
    try:
        valkey.start()
        yield tiered_product(RADIXGATE_CACHE_REDIS_URL=valkey.url)
    finally:
        valkey.close()


async def measure_restarts(contender: Contender, tier: str, *, num_restarts: int) -> list[Pair]:
    """A pair for each restart. Raises: ServerError, StreamError, TimeoutError."""
    pairs = []
    for number in range(num_restarts + 1):
        async with running(contender) as endpoint:
            start = ProcessorTimes.now(endpoint.pid)
            await warm_up(endpoint, tier, seed=f"{tier}/{number}")
            if number:
                _, known = two_questions(endpoint.model, f"known/{tier}/{number - 1}")
                cold, _ = two_questions(endpoint.model, f"cold/{tier}/{number}")
                pairs.append(await measure_pair(endpoint, known, cold))
                other_work = ProcessorTimes.now(endpoint.pid).describe_since(start)
                print(f"{tier}: {pairs[-1].describe()}; {other_work}", flush=True)
            computed, _ = two_questions(endpoint.model, f"known/{tier}/{number}")
            await ask_and_store(endpoint, computed, tier)
    return pairs


async def measure(options: argparse.Namespace) -> bool:
    """Raises: ServerError, StreamError, TimeoutError."""
    verdicts = []
    for tier in options.tier or TIERS:
        with tiered_server(tier) as contender:
            pairs = await measure_restarts(contender, tier, num_restarts=options.restarts)
        verdicts.append(judge(tier, pairs, max_ratio=MAX_RATIO))
    return all(verdicts)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--restarts", "--rounds", type=int, default=7)
    parser.add_argument("--tier", choices=TIERS, action="append", help="only this one")
    return parser


if __name__ == "__main__":
    sys.exit(run_single("cache_restart", _parser(), measure))
