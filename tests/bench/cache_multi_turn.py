"""What share of long chats comes from the cache: `python -m tests.bench.cache_multi_turn`.

16 users of 20 turns each. The share is of the tokens that could have been cached: the longest exact
beginning of each prompt that was sent or received before (telemetry/cacheable.py).
"""

import argparse
import asyncio
import sys

from gateway.bench_session import BenchPlan, run_bench
from gateway.load_target import Target
from telemetry.bench_report import BenchReport
from telemetry.bench_run import Arrival, BenchRun, LoadLevel, WorkloadNote
from telemetry.bench_text import report_lines
from telemetry.request_bodies import Endpoint as ApiEndpoint
from telemetry.script_source import WorkloadSource
from telemetry.workloads import MultiTurn
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


def measure_round(endpoint: Endpoint, workload: MultiTurn, *, seed: int) -> BenchRun:
    """One load of all users at a time."""
    level = LoadLevel(Arrival.CLOSED, concurrency=workload.users)
    plan = BenchPlan(
        targets=(("product", Target.of(endpoint.base_url, None)),),
        levels=(level,),
        sources=(WorkloadSource(workload),),
        workload=WorkloadNote("multi_turn", f"{workload.users} users", "chat"),
        endpoint=ApiEndpoint.CHAT,
        seed=seed,
        command="python -m tests.bench.cache_multi_turn",
        model=endpoint.model,
    )
    return run_bench(plan, show=lambda _: None)


async def measure(options: argparse.Namespace) -> bool:
    """A server anew for each round. Raises: ServerError."""
    shares = []
    for number in range(options.rounds):
        async with running(product()) as endpoint:
            start = ProcessorTimes.now(endpoint.pid)
            run = await asyncio.to_thread(
                measure_round, endpoint, make_workload(options), seed=number
            )
            report = BenchReport.of(run)
            print("\n".join(report_lines(report, width=120)))
            print(ProcessorTimes.now(endpoint.pid).describe_since(start), flush=True)
        (figures,) = report.figures
        if figures.num_failed or figures.used_share is None:
            print("a request failed, or tells no tokens", file=sys.stderr)
            return False
        shares.append(figures.used_share)
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
