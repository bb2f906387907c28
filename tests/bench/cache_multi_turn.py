"""What share of long chats comes from the cache: `python -m tests.bench.cache_multi_turn`.

16 users of 20 turns each. The share is of the tokens that could have been cached: the longest exact
beginning of each prompt that was sent or received before (telemetry/cacheable.py).
"""

import argparse
import asyncio
import sys

from gateway.load_client import Target, play
from telemetry.load_report import LoadReport, make_report
from telemetry.workloads import MultiTurn, make_scripts
from tests.bench.processor import ProcessorTimes
from tests.bench.servers import Endpoint, product, running
from tests.bench.single_bench import run_single

MIN_SHARE = 0.98


def make_workload(options: argparse.Namespace) -> MultiTurn:
    """At its end all users' histories take some 19,000 tokens, which the default pool holds."""
    return MultiTurn(
        version=1,
        users=options.users,
        turns=options.turns,
        system_tokens=200,
        user_tokens=options.user_tokens,
        output_tokens=24,
    )


async def measure_round(endpoint: Endpoint, workload: MultiTurn, *, seed: int) -> LoadReport:
    """One load of all users at a time."""
    load = await asyncio.to_thread(
        play,
        Target.of(endpoint.base_url, None),
        endpoint.model,
        scripts=make_scripts(workload, seed=seed),
        num_clients=workload.users,
        wants_ids=True,
    )
    return make_report(load.turns, wall_s=load.wall_s, num_unsent=load.num_unsent)


async def measure(options: argparse.Namespace) -> bool:
    """A server anew for each round. Raises: ServerError."""
    shares = []
    for number in range(options.rounds):
        async with running(product()) as endpoint:
            start = ProcessorTimes.now(endpoint.pid)
            report = await measure_round(endpoint, make_workload(options), seed=number)
            print("\n".join(report.lines()))
            print(ProcessorTimes.now(endpoint.pid).describe_since(start), flush=True)
        if report.first_failure is not None or report.used_share is None:
            print(f"a request failed: {report.first_failure}", file=sys.stderr)
            return False
        shares.append(report.used_share)
    print(f"served of what could be served: {min(shares):.2%} in the worst round")
    print(f"the target is {MIN_SHARE:.0%}")
    return min(shares) >= MIN_SHARE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--users", type=int, default=16)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--user-tokens", type=int, default=24, help="in each question")
    return parser


if __name__ == "__main__":
    sys.exit(run_single("cache_multi_turn", _parser(), measure))
