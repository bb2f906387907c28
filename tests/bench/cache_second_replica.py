"""What a prefix costs that another replica computed: `python -m tests.bench.cache_second_replica`.

Two servers share a Redis. One computes a prefix of about 1,400 tokens; the other is asked a
question behind it for the first time, then one behind a prefix that is new. Prints both times to
first token.
"""

import argparse
import sys

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
from tests.bench.servers import running
from tests.bench.single_bench import run_single
from tests.valkey_server import ValkeyServer

MAX_RATIO = 0.2
TIER = "redis"


async def measure_replicas(url: str, *, num_rounds: int) -> list[Pair]:
    """Raises: ServerError, StreamError, TimeoutError."""
    pairs = []
    contender = tiered_product(RADIXGATE_CACHE_REDIS_URL=url)
    async with running(contender) as first, running(contender) as second:
        for endpoint in (first, second):
            await warm_up(endpoint, TIER, seed=endpoint.base_url)
        for number in range(num_rounds):
            computed, known = two_questions(first.model, f"replica/{number}")
            cold, _ = two_questions(first.model, f"replica cold/{number}")
            await ask_and_store(first, computed, TIER)
            start = ProcessorTimes.now(second.pid)
            pairs.append(await measure_pair(second, known, cold))
            other_work = ProcessorTimes.now(second.pid).describe_since(start)
            print(f"{pairs[-1].describe()}; {other_work}", flush=True)
            # Its own cold prefix is written before the next round begins.
            await warm_up(second, TIER, seed=f"between/{number}")
    return pairs


async def measure(options: argparse.Namespace) -> bool:
    """Raises: ServerError, StreamError, TimeoutError."""
    valkey = ValkeyServer()
    try:
        valkey.start()
        pairs = await measure_replicas(valkey.url, num_rounds=options.rounds)
    finally:
        valkey.close()
    return judge("second replica", pairs, max_ratio=MAX_RATIO)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    return parser


if __name__ == "__main__":
    sys.exit(run_single("cache_second_replica", _parser(), measure))
