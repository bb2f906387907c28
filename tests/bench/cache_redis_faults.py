"""What a broken Redis costs: `python -m tests.bench.cache_redis_faults`.

16 clients send prompts of about 280 tokens to a server without a Redis, and to servers whose Redis
is healthy, stopped, slow, full, answers garbage, or is restarted while they send. Prints the
throughput as a share of that without a Redis, failed requests, and from /metrics how often the
breaker opened and how long after the fault's end it was closed.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace

import aiohttp
import redis

from telemetry import catalog
from tests.bench.client import ask, client_session, run_load
from tests.bench.measure import make_row
from tests.bench.processor import ProcessorTimes
from tests.bench.restored import tier_number, tiered_product
from tests.bench.servers import Endpoint, ServerError, running
from tests.bench.single_bench import run_single
from tests.bench.workloads import make_bodies, make_long_prompt
from tests.flaky_redis import FlakyRedis
from tests.valkey_server import ValkeyServer

TIER = "redis"
MIN_SHARE = 0.9
NO_REDIS, HEALTHY, STOPPED, SLOW, FULL, GARBAGE, RESTARTED = (
    "no Redis", "healthy", "stopped", "slow", "full", "garbage", "restarted",
)  # fmt: skip
SETUPS = (NO_REDIS, HEALTHY, STOPPED, SLOW, FULL, GARBAGE, RESTARTED)
# Those whose calls fail: a Redis that is full refuses writes, and is read all the same.
OPENS_BREAKER = frozenset({STOPPED, SLOW, GARBAGE, RESTARTED})
DELAY_S = 0.5
FULL_BYTES = 8 * 2**20
_RESTART_AFTER_S, _AWAY_S = 1.0, 1.0
_CLOSES_WITHIN_S = 60.0
_POLL_S = 0.25
# The numbers in /metrics are those of the last one.
_HEARTBEAT_S = 1.5


@dataclass(frozen=True, slots=True)
class FaultRow:
    """One load. `other_work` is what else the processor did meanwhile, Redis among it.
    `closed_after_s` None = there was no breaker to close, or it did not."""

    setup: str
    output_tok_s: float
    num_failed: int
    other_work: str = ""
    num_failures: float = 0.0
    num_openings: float = 0.0
    closed_after_s: float | None = None

    def describe(self) -> str:
        closed = "-" if self.closed_after_s is None else f"{self.closed_after_s:.1f} s"
        return (
            f"{self.setup:<10} {self.output_tok_s:7.1f} tok/s, {self.other_work},"
            f" {self.num_failed} requests failed,"
            f" {self.num_failures:.0f} calls of the tier failed,"
            f" breaker opened {self.num_openings:.0f} times, closed after {closed}"
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """One setup over all rounds. `share` is of the throughput without a Redis, round by round."""

    setup: str
    share: float
    num_failed: int
    num_openings: float
    was_closed: bool

    @property
    def is_good(self) -> bool:
        opened = self.num_openings > 0 and self.was_closed
        return (
            self.share >= MIN_SHARE
            and self.num_failed == 0
            and (opened or self.setup not in OPENS_BREAKER)
        )

    def describe(self) -> str:
        return (
            f"{self.setup:<10} {self.share:.1%} of the throughput without a Redis,"
            f" {self.num_failed} requests failed, breaker opened {self.num_openings:.0f} times"
            f"{'' if self.was_closed else ' and was not closed'}"
        )


def outcomes(rounds: Sequence[Sequence[FaultRow]]) -> list[Outcome]:
    """Medians over the rounds of each setup but the first, which they are compared with."""
    found = []
    for setup in SETUPS[1:]:
        rows = [row for one in rounds for row in one if row.setup == setup]
        shares = [
            row.output_tok_s / base.output_tok_s
            for one in rounds
            for base in one
            for row in one
            if base.setup == NO_REDIS and row.setup == setup
        ]
        if rows:
            found.append(
                Outcome(
                    setup,
                    statistics.median(shares),
                    sum(row.num_failed for row in rows),
                    sum(row.num_openings for row in rows),
                    all(row.closed_after_s is not None for row in rows if row.num_openings),
                )
            )
    return found


@contextmanager
def proxied_valkey() -> Iterator[tuple[ValkeyServer, FlakyRedis]]:
    """A Redis behind a proxy that can be told to be bad."""
    valkey = ValkeyServer()
    try:
        valkey.start()
        with FlakyRedis(valkey.port) as proxy:
            yield valkey, proxy
    finally:
        valkey.close()


def fill_up(valkey: ValkeyServer) -> None:
    """From now on the server has no memory for anything more."""
    with redis.Redis.from_url(valkey.url) as client:
        client.config_set("maxmemory", FULL_BYTES)
        client.config_set("maxmemory-policy", "noeviction")
        with suppress(redis.ResponseError):
            for number in range(FULL_BYTES):
                client.set(f"filling/{number}", bytes(2**16))


@asynccontextmanager
async def faulty(setup: str, valkey: ValkeyServer, proxy: FlakyRedis) -> AsyncIterator[None]:
    """The fault is there inside the block; of a restart only what takes its time."""
    restart: asyncio.Task[None] | None = None
    if setup == STOPPED:
        valkey.stop()
    elif setup == SLOW:
        proxy.delay_s = DELAY_S
    elif setup == GARBAGE:
        proxy.sends_garbage = True
    elif setup == FULL:
        await asyncio.to_thread(fill_up, valkey)
    elif setup == RESTARTED:
        restart = asyncio.create_task(_restart(valkey))
    try:
        yield
    finally:
        if restart is not None:
            await restart
        if setup == STOPPED:
            await asyncio.to_thread(valkey.start)
        proxy.delay_s, proxy.sends_garbage = 0.0, False


async def _restart(valkey: ValkeyServer) -> None:
    await asyncio.sleep(_RESTART_AFTER_S)
    valkey.stop()
    await asyncio.sleep(_AWAY_S)
    await asyncio.to_thread(valkey.start)


@dataclass(frozen=True, slots=True)
class Plan:
    """The same load for each setup of a round."""

    num_clients: int
    num_each: int
    seed: str


async def measure_setup(setup: str, plan: Plan) -> FaultRow:
    """A server of its own. Raises: ServerError, StreamError."""
    if setup == NO_REDIS:
        async with running(tiered_product()) as endpoint:
            return await _load(setup, endpoint, plan)
    with proxied_valkey() as (valkey, proxy):
        async with running(tiered_product(RADIXGATE_CACHE_REDIS_URL=proxy.url)) as endpoint:
            async with faulty(setup, valkey, proxy):
                row = await _load(setup, endpoint, plan)
            return await _with_breaker(row, endpoint)


async def _load(setup: str, endpoint: Endpoint, plan: Plan) -> FaultRow:
    """Raises: ServerError where nothing was answered."""
    clients = plan.num_clients
    for name, count in (("warm-up", clients), ("load", clients * plan.num_each)):
        bodies = make_bodies(
            "unique", endpoint.model, num_requests=count, seed=f"faults/{plan.seed}/{name}"
        )
        start = ProcessorTimes.now(endpoint.pid)
        load = await run_load(endpoint.base_url, bodies, num_clients=clients)
        other_work = ProcessorTimes.now(endpoint.pid).describe_since(start)
    row = make_row(setup, "unique", clients, load)
    if row.output_tokens == 0:
        raise ServerError(f"{setup}: no request was answered: {row.first_failure}")
    return FaultRow(setup, row.summary.output_tok_s, row.num_failed, other_work)


async def _with_breaker(row: FaultRow, endpoint: Endpoint) -> FaultRow:
    """Asks now and then, so that the breaker may try again, until it is closed."""
    await asyncio.sleep(_HEARTBEAT_S)
    since_s = time.monotonic()
    closed_after_s = None
    async with client_session() as session:
        openings = await tier_number(session, endpoint, catalog.TIER_OPENINGS.exposed_name, TIER)
        while openings and time.monotonic() - since_s < _CLOSES_WITHIN_S:
            if await tier_number(session, endpoint, catalog.TIER_UP.exposed_name, TIER) == 1:
                closed_after_s = time.monotonic() - since_s
                break
            await _ask_something(session, endpoint)
            await asyncio.sleep(_POLL_S)
        failures = await tier_number(session, endpoint, catalog.TIER_FAILURES.exposed_name, TIER)
        openings = await tier_number(session, endpoint, catalog.TIER_OPENINGS.exposed_name, TIER)
    return replace(row, num_failures=failures, num_openings=openings, closed_after_s=closed_after_s)


async def _ask_something(session: aiohttp.ClientSession, endpoint: Endpoint) -> None:
    seed = f"breaker/{time.monotonic_ns()}"
    body = make_long_prompt(endpoint.model, num_words=200, max_tokens=1, seed=seed)
    await ask(session, endpoint.base_url, body)


async def measure(options: argparse.Namespace) -> bool:
    """Raises: ServerError, StreamError."""
    setups = [NO_REDIS, *(options.setup or SETUPS[1:])]
    rounds = []
    for number in range(options.rounds):
        plan = Plan(options.clients, options.requests, str(number))
        rows = []
        for setup in setups:
            rows.append(await measure_setup(setup, plan))
            print(rows[-1].describe(), flush=True)
        rounds.append(rows)
    found = outcomes(rounds)
    for outcome in found:
        print(outcome.describe())
    print(
        f"targets: {MIN_SHARE:.0%} of the throughput, no request failed, breaker opens and closes"
    )
    return all(outcome.is_good for outcome in found if outcome.setup != HEALTHY)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--requests", type=int, default=6, help="of each client in each load")
    parser.add_argument("--setup", choices=SETUPS[1:], action="append", help="only this one")
    return parser


if __name__ == "__main__":
    sys.exit(run_single("cache_redis_faults", _parser(), measure))
