"""What traces cost: `python -m tests.bench.tracing_cost`.

Two servers of the default model, one that traces nothing and one that exports each request's spans
to a collector in a process of its own, get the same loads by turns. Prints the throughput of the
second over the first, the processor time of both gateways, and whether every span arrived. With
`--collector dead`, `slow` or `refusing` it is the same, with a collector that is of no use.
"""

import argparse
import asyncio
import statistics
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import httpx2

from telemetry import catalog
from tests.bench.client import run_load
from tests.bench.measure import make_row, warm_up
from tests.bench.processor import ProcessorTimes, process_seconds
from tests.bench.servers import Contender, Endpoint, ServerError, product, running
from tests.bench.single_bench import run_single
from tests.bench.workloads import make_bodies
from tests.e2e.scrape import scrape
from tests.model_file import ROOT
from tests.otlp_receiver import closed_port

MIN_RATIO = 0.98
DEAD = "dead"
COLLECTORS = ("live", DEAD, "slow", "refusing")
# SERVER, model, tokenize, queue, cache.match, prefill and decode; prompts in chunks have more.
MIN_SPANS_EACH = 7
# Longer than the exporting thread sleeps between two batches, and than it tries to send one.
_SETTLED_S = 15.0
_SETTLES_WITHIN_S = 180.0
_POLL_S = 0.5
_END_S = 10.0
_MS = 1e3


@dataclass(frozen=True, slots=True)
class Turn:
    """One load on one server. `gateway_ms` is the processor time of its gateway process for each
    request; `other_cores` what else the processor did."""

    output_tok_s: float
    requests_s: float
    gateway_ms: float
    other_cores: float | None


@dataclass(frozen=True, slots=True)
class Round:
    """The same load on both."""

    plain: Turn
    traced: Turn

    def describe(self) -> str:
        others = max(self.plain.other_cores or 0.0, self.traced.other_cores or 0.0)
        return (
            f"plain {_figures(self.plain)}; traced {_figures(self.traced)};"
            f" ratio {self.traced.output_tok_s / self.plain.output_tok_s:.3f};"
            f" other work took {others:.2f} cores"
        )


def _figures(turn: Turn) -> str:
    return (
        f"{turn.output_tok_s:.1f} tok/s, {turn.requests_s:.1f} requests/s,"
        f" {turn.gateway_ms:.2f} ms of the gateway a request"
    )


@dataclass(frozen=True, slots=True)
class Cost:
    """Of all rounds: `ratio` is of the medians of throughput, `gateway_ms` the difference of the
    medians of the gateways' time for a request."""

    ratio: float
    gateway_ms: float

    @classmethod
    def of(cls, rounds: Sequence[Round]) -> "Cost":
        plain = [one.plain for one in rounds]
        traced = [one.traced for one in rounds]
        return cls(
            ratio=_median([turn.output_tok_s for turn in traced])
            / _median([turn.output_tok_s for turn in plain]),
            gateway_ms=_median([turn.gateway_ms for turn in traced])
            - _median([turn.gateway_ms for turn in plain]),
        )


def _median(values: Sequence[float]) -> float:
    return statistics.median(values)


@dataclass(frozen=True, slots=True)
class SpanCount:
    """What became of the spans; `received` is what the collector says."""

    exported: int
    dropped: int
    received: int

    def is_right(self, collector: str, num_requests: int) -> bool:
        """Whether all arrived, or all that did not are counted. A slow collector may keep up."""
        is_complete = self.exported + self.dropped >= MIN_SPANS_EACH * num_requests
        if self.exported != self.received or not is_complete:
            return False
        if collector == "live":
            return self.dropped == 0
        return collector == "slow" or self.exported == 0

    def describe(self, num_requests: int) -> str:
        num_spans = self.exported + self.dropped
        return (
            f"{num_spans} spans of {num_requests} requests"
            f" ({num_spans / num_requests:.1f} each): {self.exported} exported,"
            f" {self.received} received, {self.dropped} dropped"
        )


@dataclass(frozen=True, slots=True)
class Collector:
    """Where spans go to. `pid` is None where there is no process."""

    url: str
    pid: int | None = None

    async def num_received(self) -> int:
        if self.pid is None:
            return 0
        async with httpx2.AsyncClient(timeout=_END_S) as client:
            return int((await client.get(f"{self.url}/count")).json())


@asynccontextmanager
async def collecting(answers: str) -> AsyncIterator[Collector]:
    """Raises: ServerError."""
    if answers == DEAD:
        yield Collector(closed_port())
        return
    command = [sys.executable, "-m", "tests.bench.span_collector", "--answers", answers]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        port = (await process.stdout.readline()).decode().strip()
        if not port:
            raise ServerError("the collector did not start")
        yield Collector(f"http://127.0.0.1:{port}", process.pid)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def traced_product(collector: Collector) -> Contender:
    """Every request is sampled; of the steps as many as by default."""
    server = product(
        OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=f"{collector.url}/v1/traces",
        OTEL_EXPORTER_OTLP_TRACES_PROTOCOL="http/protobuf",
        OTEL_TRACES_SAMPLER="always_on",
    )
    return replace(server, name="traced")


def plain_product() -> Contender:
    return replace(product(OTEL_TRACES_EXPORTER="none"), name="plain")


@dataclass(frozen=True, slots=True)
class Load:
    """What each turn sends: `num_each` requests of each client, answers of so many tokens."""

    num_clients: int
    num_each: int
    num_tokens: int

    @property
    def num_requests(self) -> int:
        return self.num_clients * self.num_each


async def _turn(endpoint: Endpoint, load: Load, *, seed: str) -> Turn:
    """Raises: ServerError where a request failed."""
    bodies = make_bodies("short", endpoint.model, num_requests=load.num_requests, seed=seed)
    bodies = [body | {"max_tokens": load.num_tokens} for body in bodies]
    assert endpoint.pid is not None
    start, gateway_s = ProcessorTimes.now(endpoint.pid), process_seconds(endpoint.pid)
    recorded = await run_load(endpoint.base_url, bodies, num_clients=load.num_clients)
    gateway_s = process_seconds(endpoint.pid) - gateway_s
    other_cores = ProcessorTimes.now(endpoint.pid).other_cores_since(start)
    row = make_row("", "short", load.num_clients, recorded)
    if row.num_failed:
        raise ServerError(f"{row.num_failed} requests failed: {row.first_failure}")
    return Turn(
        output_tok_s=row.output_tokens / row.wall_s,
        requests_s=load.num_requests / row.wall_s,
        gateway_ms=gateway_s / load.num_requests * _MS,
        other_cores=other_cores,
    )


async def _round(plain: Endpoint, traced: Endpoint, load: Load, *, number: int) -> Round:
    """Who comes first changes from round to round: what drifts is no difference then."""
    seed = f"tracing/{number}"
    if number % 2:
        second = await _turn(traced, load, seed=seed)
        return Round(await _turn(plain, load, seed=seed), second)
    first = await _turn(plain, load, seed=seed)
    return Round(first, await _turn(traced, load, seed=seed))


async def _settled(endpoint: Endpoint, collector: Collector) -> SpanCount:
    """When nothing has changed for longer than a span may wait."""
    address = endpoint.base_url.removesuffix("/v1")
    exported, dropped = catalog.SPANS_EXPORTED.exposed_name, catalog.SPANS_DROPPED.exposed_name
    last = SpanCount(-1, -1, -1)
    settled_s = 0.0
    async with (
        asyncio.timeout(_SETTLES_WITHIN_S),
        httpx2.AsyncClient(base_url=address, timeout=_END_S) as client,
    ):
        while settled_s < _SETTLED_S:
            found = await scrape(client)
            now = SpanCount(
                round(found[exported]), round(found[dropped]), await collector.num_received()
            )
            settled_s = settled_s + _POLL_S if now == last else 0.0
            last = now
            await asyncio.sleep(_POLL_S)
    return last


async def measure(options: argparse.Namespace) -> bool:
    """Raises: ServerError, StreamError, TimeoutError."""
    load = Load(options.clients, options.requests, options.tokens)
    async with (
        collecting(options.collector) as collector,
        running(plain_product()) as plain,
        running(traced_product(collector)) as traced,
    ):
        for endpoint in (plain, traced):
            await warm_up(endpoint, num_clients=load.num_clients, seed="tracing")
            await _turn(endpoint, load, seed="tracing/warm-up")
        rounds = []
        for number in range(options.rounds):
            rounds.append(await _round(plain, traced, load, number=number))
            print(rounds[-1].describe(), flush=True)
        spans = await _settled(traced, collector)
        if collector.pid is not None:
            print(f"the collector took {process_seconds(collector.pid):.2f} s of processor time")
    # Beside the rounds: the warm-up of all clients, of three other workloads, and the first answer.
    num_requests = load.num_requests * (options.rounds + 1) + load.num_clients + 3 + 1
    print(spans.describe(num_requests))
    cost = Cost.of(rounds)
    print(
        f"{options.collector} collector: throughput {cost.ratio:.3f} of that without traces, the"
        f" target is {MIN_RATIO}; {cost.gateway_ms:+.2f} ms of the gateway for each request"
    )
    return cost.ratio >= MIN_RATIO and spans.is_right(options.collector, num_requests)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--requests", type=int, default=40, help="of each client in each turn (40)")
    parser.add_argument("--tokens", type=int, default=8, help="of each answer (8)")
    parser.add_argument("--collector", choices=COLLECTORS, default="live")
    return parser


if __name__ == "__main__":
    sys.exit(run_single("tracing_cost", _parser(), measure))
