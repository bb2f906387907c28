"""What a warm shared prefix costs a request: `python -m tests.bench.cache_shared`.

16 clients ask questions behind one system prompt of about 1,400 tokens that is cached, and by turns
the same questions without it. Prints the times to first token and their ratio.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from telemetry.answer_stream import StreamError, read_answer
from telemetry.load import percentile
from tests.bench.client import run_load
from tests.bench.processor import ProcessorTimes
from tests.bench.servers import Endpoint, product, running
from tests.bench.single_bench import run_single
from tests.bench.workloads import Body, make_bodies

MAX_RATIO = 1.3
_MS = 1e3


@dataclass(frozen=True, slots=True)
class Side:
    """Times to first token of one load, and what was cached of its prompts."""

    ttft_ms: tuple[float, ...]
    prompt_tokens: int
    cached_tokens: int

    @property
    def p50_ms(self) -> float:
        return statistics.median(self.ttft_ms)

    def describe(self) -> str:
        p95 = percentile(self.ttft_ms, 0.95)
        return (
            f"p50 {self.p50_ms:.1f} ms, p95 {p95:.1f} ms"
            f" ({self.cached_tokens / self.prompt_tokens:.1%} of the prompts cached)"
        )


def without_prefix(body: Body) -> Body:
    """The same question without the system prompt."""
    return body | {"messages": [one for one in body["messages"] if one["role"] != "system"]}


async def measure_side(endpoint: Endpoint, bodies: Sequence[Body], *, num_clients: int) -> Side:
    """Raises: StreamError."""
    load = await run_load(endpoint.base_url, bodies, num_clients=num_clients)
    answers = [read_answer(stream) for stream in load.streams]
    timings = [answer.timing for answer in answers if answer.timing is not None]
    if len(timings) < len(answers):
        raise StreamError("an answer without text")
    return Side(
        tuple(timing.ttft_s * _MS for timing in timings),
        sum(answer.prompt_tokens for answer in answers),
        sum(answer.cached_tokens or 0 for answer in answers),
    )


async def measure(options: argparse.Namespace) -> bool:
    """Each round has questions of its own, asked both ways; who begins changes. Raises:
    ServerError, StreamError."""
    num_each, num_clients = options.clients * options.requests, options.clients
    ratios = []
    async with running(product()) as endpoint:
        bodies = make_bodies(
            "shared", endpoint.model, num_requests=num_each * (options.rounds + 1), seed="shared"
        )
        rounds = [bodies[at : at + num_each] for at in range(0, len(bodies), num_each)]
        for side in (rounds[0], list(map(without_prefix, rounds[0]))):  # warms both
            await measure_side(endpoint, side[:1], num_clients=1)
            await measure_side(endpoint, side, num_clients=num_clients)
        start = ProcessorTimes.now(endpoint.pid)
        for number, given in enumerate(rounds[1:]):
            sides = [given, list(map(without_prefix, given))]
            order = (0, 1) if number % 2 == 0 else (1, 0)
            found = {
                which: await measure_side(endpoint, sides[which], num_clients=num_clients)
                for which in order
            }
            ratios.append(found[0].p50_ms / found[1].p50_ms)
            print(
                f"TTFT with the prefix {found[0].describe()},"
                f" without {found[1].describe()}: ratio {ratios[-1]:.2f}",
                flush=True,
            )
        print(ProcessorTimes.now(endpoint.pid).describe_since(start))
    print(f"median ratio {statistics.median(ratios):.2f}, target {MAX_RATIO}")
    return statistics.median(ratios) <= MAX_RATIO


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--requests", type=int, default=3, help="of each client, a round and side")
    return parser


if __name__ == "__main__":
    sys.exit(run_single("cache_shared", _parser(), measure))
