"""What one key's flood does to another key: `python -m tests.bench.fairness`.

32 clients of one key send all the time; one client of another key asks now and then. Prints its
time to first token without the flood and beside it, by turns, and the ratios.
"""

import argparse
import asyncio
import itertools
import random
import statistics
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import aiohttp
import httpx2
import uvloop

from telemetry.answer_stream import RecordedStream, StreamError, read_answer, text_arrivals_ns
from telemetry.catalog import FAIR_PREEMPTIONS
from telemetry.load import percentile
from tests.bench.client import client_session, record
from tests.bench.machine import this_machine
from tests.bench.processor import ProcessorTimes
from tests.bench.servers import Contender, Endpoint, ServerError, product, running
from tests.bench.workloads import Body, make_bodies
from tests.e2e.scrape import scrape, until_running

FLOOD_KEY, OTHER_KEY = "bench-flood", "bench-other"
NUM_CLIENTS = 32
# All prompts have about 280 tokens that no other begins with.
FLOOD_TOKENS = 128
OTHER_TOKENS = 32
MAX_PAUSE_S = 0.3
# The target of this project.
MAX_RATIO = 2.0
_TIMEOUT_S = 300.0
_POLL_S = 0.02
_MS = 1e3


@dataclass(frozen=True, slots=True)
class Round:
    """Times to first token of the one client, in ms, and what the flood got meanwhile."""

    alone_ms: tuple[float, ...]
    beside_ms: tuple[float, ...]
    flood_tok_s: float
    num_preemptions: int

    def describe(self) -> str:
        return (
            f"TTFT alone {_p50_p95(self.alone_ms)} ms, beside the flood"
            f" {_p50_p95(self.beside_ms)} ms ({len(self.beside_ms)} requests);"
            f" the flood {self.flood_tok_s:.0f} tok/s, {self.num_preemptions} of its answers gave"
            " their place up for a moment"
        )


@dataclass(frozen=True, slots=True)
class Ratios:
    """Beside the flood over alone: medians of the rounds."""

    p50: float
    p95: float

    @classmethod
    def of(cls, rounds: Sequence[Round]) -> "Ratios":
        return cls(*(_ratio(rounds, quantile) for quantile in (0.5, 0.95)))

    @property
    def worst(self) -> float:
        return max(self.p50, self.p95)


def _ratio(rounds: Sequence[Round], quantile: float) -> float:
    return statistics.median(
        _quantile(one.beside_ms, quantile) / _quantile(one.alone_ms, quantile) for one in rounds
    )


def _quantile(values: Sequence[float], quantile: float) -> float:
    found = percentile(values, quantile)
    assert found is not None, "a round has requests"
    return found


def _p50_p95(values: Sequence[float]) -> str:
    return f"{_quantile(values, 0.5):.0f} / {_quantile(values, 0.95):.0f}"


def _server() -> Contender:
    server = product(RADIXGATE_API_KEYS=f"{FLOOD_KEY},{OTHER_KEY}")
    return replace(server, api_key=OTHER_KEY)


def endless_bodies(endpoint: Endpoint, *, max_tokens: int, seed: str) -> Iterator[Body]:
    """Without an end."""
    for number in itertools.count():
        for body in make_bodies(
            "unique", endpoint.model, num_requests=50, seed=f"fairness/{seed}/{number}"
        ):
            yield body | {"max_tokens": max_tokens}


async def _ask(
    endpoint: Endpoint, *, api_key: str, num_requests: int, seed: str
) -> tuple[float, ...]:
    """One by one, at any moment of the server's steps. Raises: StreamError."""
    rng = random.Random(seed)
    found = []
    async with client_session(api_key) as session:
        bodies = endless_bodies(endpoint, max_tokens=OTHER_TOKENS, seed=seed)
        for body in itertools.islice(bodies, num_requests):
            await asyncio.sleep(rng.uniform(0.0, MAX_PAUSE_S))
            stream = RecordedStream(0)
            await record(session, endpoint.base_url, body, stream)
            timing = read_answer(stream).timing
            if timing is None:
                raise StreamError("an answer without text")
            found.append(timing.ttft_s * _MS)
    return tuple(found)


@asynccontextmanager
async def _flood(
    endpoint: Endpoint, *, num_clients: int, seed: str
) -> AsyncIterator[list[RecordedStream]]:
    """The clients of the flood, when as many answers as there are of them have ended; `streams`
    grows. Raises: StreamError where one is not answered, TimeoutError."""
    streams: list[RecordedStream] = []
    num_ended = 0
    bodies = endless_bodies(endpoint, max_tokens=FLOOD_TOKENS, seed=seed)

    async def send_for_ever(session: aiohttp.ClientSession) -> None:
        nonlocal num_ended
        for body in bodies:
            stream = RecordedStream(0)
            streams.append(stream)
            await record(session, endpoint.base_url, body, stream)
            read_answer(stream)
            num_ended += 1

    async with client_session(FLOOD_KEY) as session:
        tasks = [asyncio.create_task(send_for_ever(session)) for _ in range(num_clients)]
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                while num_ended < num_clients and not any(task.done() for task in tasks):  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_S)
            yield streams
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _measure_round(endpoint: Endpoint, options: argparse.Namespace, *, number: int) -> Round:
    api_key = FLOOD_KEY if options.same_key else OTHER_KEY
    headers = {"Authorization": f"Bearer {OTHER_KEY}"}
    address = endpoint.base_url.removesuffix("/v1")
    async with httpx2.AsyncClient(base_url=address, headers=headers) as client:
        alone = await _ask(
            endpoint, api_key=api_key, num_requests=options.requests, seed=f"alone/{number}"
        )
        before = await _num_preemptions(client)
        async with _flood(endpoint, num_clients=options.clients, seed=f"flood/{number}") as streams:
            start = asyncio.get_running_loop().time()
            num_before = _num_pieces(streams)
            beside = await _ask(
                endpoint, api_key=api_key, num_requests=options.requests, seed=f"beside/{number}"
            )
            num_pieces = _num_pieces(streams) - num_before
            seconds = asyncio.get_running_loop().time() - start
        preemptions = await _num_preemptions(client) - before
        await until_running(client, 0)
    return Round(alone, beside, num_pieces / seconds, preemptions)


def _num_pieces(streams: Sequence[RecordedStream]) -> int:
    """Deltas with text, which are about as many as tokens."""
    return sum(len(text_arrivals_ns(stream)) for stream in streams)


async def _num_preemptions(client: httpx2.AsyncClient) -> int:
    """Since the server's start."""
    return round((await scrape(client))[FAIR_PREEMPTIONS.exposed_name])


async def measure_rounds(options: argparse.Namespace) -> list[Round]:
    """Raises: ServerError, StreamError, TimeoutError."""
    rounds = []
    async with running(_server()) as endpoint:
        await _ask(endpoint, api_key=OTHER_KEY, num_requests=4, seed="warm-up")
        async with _flood(endpoint, num_clients=options.clients, seed="warm-up"):
            pass
        start = ProcessorTimes.now(endpoint.pid)
        for number in range(options.rounds):
            rounds.append(await _measure_round(endpoint, options, number=number))
            print(rounds[-1].describe(), flush=True)
        print(ProcessorTimes.now(endpoint.pid).describe_since(start))
    return rounds


def main() -> int:
    """Prints a line a round and the medians; 1 where one is over the target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=20, help="of the one client, each time")
    parser.add_argument("--clients", type=int, default=NUM_CLIENTS, help="of the flood")
    parser.add_argument(
        "--same-key", action="store_true", help="the one client has the flood's key: a queue"
    )
    options = parser.parse_args()
    print(this_machine().describe())
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            rounds = runner.run(measure_rounds(options))
        except (ServerError, StreamError, TimeoutError) as error:
            print(f"fairness: {error or 'the flood did not run'}", file=sys.stderr)
            return 1
    ratios = Ratios.of(rounds)
    print(
        f"ratio of p50 {ratios.p50:.2f}, of p95 {ratios.p95:.2f}; the target is {MAX_RATIO}",
    )
    return int(ratios.worst > MAX_RATIO)


if __name__ == "__main__":
    sys.exit(main())
