"""Throughput with too little KV memory for the load: `python -m tests.bench.small_pool`.

The same requests with a page pool that holds all of them and with one that does not, each with
few clients and with many. Memory that is short should cost what smaller batches cost and no more:
with many clients a pool should give nearly what it gives at its best.
"""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import httpx2
import uvloop

from telemetry.answer_stream import StreamError, read_answer
from telemetry.catalog import PREEMPTIONS
from tests.bench.client import RecordedLoad, run_load
from tests.bench.load_summary import Limits, goodput
from tests.bench.machine import this_machine
from tests.bench.measure import make_row, warm_up
from tests.bench.processor import ProcessorTimes
from tests.bench.servers import Endpoint, ServerError, product, running
from tests.bench.workloads import make_bodies
from tests.e2e.scrape import scrape

# A request of about 280 tokens in and 256 out takes 12 MiB in bfloat16, 24 in float32: the default
# pool holds 16 of them in either, the other 5 or 2.
POOLS_MIB = (512, 64)
CLIENTS = (4, 16)
NUM_REQUESTS = 16
OUTPUT_TOKENS = 256
MIN_SHARE = 0.8
# For goodput: what a reader of a chat still takes for prompt.
LIMITS = Limits(max_ttft_s=5.0, max_tpot_s=0.1)


@dataclass(frozen=True, slots=True)
class PoolRow:
    """One load on a server whose pool has `pool_mib`."""

    pool_mib: int
    num_clients: int
    num_failed: int
    output_tok_s: float
    good_s: float
    ttft_p99_ms: float | None
    num_preemptions: int

    def describe(self) -> str:
        return (
            f"{self.pool_mib} MiB, {self.num_clients} clients: {self.output_tok_s:.0f} tok/s,"
            f" {self.good_s:.2f} good requests/s, TTFT p99 {self.ttft_p99_ms or 0:,.0f} ms,"
            f" {self.num_preemptions} preemptions, {self.num_failed} failed"
        )


def shares_of_best(rows: Sequence[PoolRow]) -> dict[int, float]:
    """For each pool: the throughput with the most clients over the best of any number of them."""
    shares = {}
    for pool_mib in dict.fromkeys(row.pool_mib for row in rows):
        own = [row for row in rows if row.pool_mib == pool_mib]
        crowded = max(own, key=lambda row: row.num_clients)
        shares[pool_mib] = crowded.output_tok_s / max(row.output_tok_s for row in own)
    return shares


async def measure_pools(pools_mib: Sequence[int], *, num_requests: int) -> list[PoolRow]:
    """Raises: ServerError."""
    rows = []
    for pool_mib in pools_mib:
        async with running(product(RADIXGATE_KV_MEMORY_MB=str(pool_mib))) as endpoint:
            await warm_up(endpoint, num_clients=max(CLIENTS), seed="pool")
            start = ProcessorTimes.now(endpoint.pid)
            async for row in _loads(endpoint, pool_mib, num_requests=num_requests):
                rows.append(row)
                print(row.describe(), flush=True)
            print(ProcessorTimes.now(endpoint.pid).describe_since(start))
    return rows


async def _loads(endpoint: Endpoint, pool_mib: int, *, num_requests: int) -> AsyncIterator[PoolRow]:
    for num_clients in CLIENTS:
        bodies = make_bodies(
            "unique", endpoint.model, num_requests=num_requests, seed=f"pool/{num_clients}"
        )
        longer = [body | {"max_tokens": OUTPUT_TOKENS} for body in bodies]
        before = await _num_preemptions(endpoint)
        load = await run_load(endpoint.base_url, longer, num_clients=num_clients)
        row = make_row("radixgate", "unique", num_clients, load)
        yield PoolRow(
            pool_mib=pool_mib,
            num_clients=num_clients,
            num_failed=row.num_failed,
            output_tok_s=row.summary.output_tok_s,
            good_s=_good_s(load),
            ttft_p99_ms=row.summary.ttft_p99_ms,
            num_preemptions=await _num_preemptions(endpoint) - before,
        )


async def _num_preemptions(endpoint: Endpoint) -> int:
    """Since the server's start."""
    async with httpx2.AsyncClient(base_url=endpoint.base_url.removesuffix("/v1")) as client:
        return round((await scrape(client))[PREEMPTIONS.exposed_name])


def _good_s(load: RecordedLoad) -> float:
    timings = []
    for stream in load.streams:
        try:
            timing = read_answer(stream).timing
        except StreamError:
            continue
        if timing is not None:
            timings.append(timing)
    return goodput(timings, LIMITS, wall_s=load.wall_s)


def main() -> int:
    """Prints a line a load and a share a pool; 1 where one is under the target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pool-mib", type=int, action="append", help=f"instead of {POOLS_MIB}")
    parser.add_argument("--num-requests", type=int, default=NUM_REQUESTS)
    options = parser.parse_args()
    print(this_machine().describe())
    print(f"a good request: TTFT {LIMITS.max_ttft_s} s, TPOT {LIMITS.max_tpot_s} s or less")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            rows = runner.run(
                measure_pools(options.pool_mib or POOLS_MIB, num_requests=options.num_requests)
            )
        except ServerError as error:
            print(f"small_pool: {error}", file=sys.stderr)
            return 1
    shares = shares_of_best(rows)
    for pool_mib, share in shares.items():
        print(f"{pool_mib} MiB: with {max(CLIENTS)} clients {share:.0%} of its best")
    most = max(row.output_tok_s for row in rows)
    for pool_mib in shares:
        best = max(row.output_tok_s for row in rows if row.pool_mib == pool_mib)
        print(f"{pool_mib} MiB: its best is {best / most:.0%} of the best of all pools")
    has_failed = any(row.num_failed for row in rows)
    return int(has_failed or min(shares.values()) < MIN_SHARE)


if __name__ == "__main__":
    sys.exit(main())
