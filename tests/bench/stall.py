"""What a long prompt does to streams that are running: `python -m tests.bench.stall`.

Eight streams decode; then a new prompt of about 4,000 tokens comes. Prints the p99 of the time
between pieces of text of the eight, before it and while it is computed, and the ratio.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp
import uvloop

from telemetry.answer_stream import RecordedStream, StreamError, read_answer, text_arrivals_ns
from telemetry.load import percentile
from tests.bench.client import client_session, record
from tests.bench.machine import this_machine
from tests.bench.measure import warm_up
from tests.bench.processor import ProcessorTimes
from tests.bench.servers import Endpoint, ServerError, product, running
from tests.bench.workloads import make_bodies, make_long_prompt

NUM_STREAMS = 8
# The target of this project.
MAX_RATIO = 2.5
_WARM_TOKENS = 32
_MEASURED_TOKENS = 128
# More than are decoded while any prompt is computed; the streams are left when it is.
_MAX_TOKENS = 3000
_TIMEOUT_S = 120.0
_POLL_S = 0.01
_MS = 1e3


@dataclass(frozen=True, slots=True)
class Stall:
    """One round: p99 in ms before the long prompt and while it is computed."""

    before_p99_ms: float
    during_p99_ms: float
    num_gaps_before: int
    num_gaps_during: int
    prompt_tokens: int
    prompt_ttft_ms: float

    @property
    def ratio(self) -> float:
        return self.during_p99_ms / self.before_p99_ms

    def describe(self) -> str:
        return (
            f"p99 {self.before_p99_ms:.1f} ms before ({self.num_gaps_before} gaps),"
            f" {self.during_p99_ms:.1f} ms during ({self.num_gaps_during} gaps),"
            f" ratio {self.ratio:.2f}; the prompt of {self.prompt_tokens} tokens had its first"
            f" token after {self.prompt_ttft_ms:.0f} ms"
        )


def gaps_within(arrivals_ns: Sequence[int], start_ns: int, end_ns: int) -> list[float]:
    """Milliseconds between neighbours, of all gaps that overlap the time: what a reader of the
    stream waited for in it, also where the wait began before or ended after."""
    return [
        (after - before) / 1e6
        for before, after in zip(arrivals_ns, arrivals_ns[1:], strict=False)
        if after > start_ns and before < end_ns
    ]


async def _measure_stall(endpoint: Endpoint, *, num_words: int, seed: str) -> Stall:
    """Raises: StreamError where a request fails, TimeoutError where the streams do not run."""
    bodies = make_bodies("short", endpoint.model, num_requests=NUM_STREAMS, seed=seed)
    streams = [RecordedStream(0) for _ in bodies]
    async with client_session() as session:
        tasks = [
            asyncio.create_task(
                record(session, endpoint.base_url, body | {"max_tokens": _MAX_TOKENS}, stream)
            )
            for body, stream in zip(bodies, streams, strict=True)
        ]
        try:
            await _until_all_have(streams, _WARM_TOKENS)
            before_ns = time.perf_counter_ns()
            await _until_all_have(streams, _WARM_TOKENS + _MEASURED_TOKENS)
            long = await _send_long(session, endpoint, num_words=num_words, seed=seed)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return evaluate(streams, long, before_ns=before_ns)


def evaluate(streams: Sequence[RecordedStream], long: RecordedStream, *, before_ns: int) -> Stall:
    """Before = [before_ns, the long prompt's sending), during = from there to its first text.

    Raises: StreamError.
    """
    answer = read_answer(long)
    if answer.timing is None:
        raise StreamError("the long prompt was answered without text")
    first_ns = long.start_ns + round(answer.timing.ttft_s * 1e9)
    arrivals = [text_arrivals_ns(stream) for stream in streams]
    if any(times[-1] < first_ns for times in arrivals):
        raise StreamError("a stream ended before the long prompt was computed")
    before = [gap for times in arrivals for gap in gaps_within(times, before_ns, long.start_ns)]
    during = [gap for times in arrivals for gap in gaps_within(times, long.start_ns, first_ns)]
    before_p99, during_p99 = percentile(before, 0.99), percentile(during, 0.99)
    assert before_p99 is not None
    assert during_p99 is not None
    return Stall(
        before_p99_ms=before_p99,
        during_p99_ms=during_p99,
        num_gaps_before=len(before),
        num_gaps_during=len(during),
        prompt_tokens=answer.prompt_tokens,
        prompt_ttft_ms=answer.timing.ttft_s * _MS,
    )


async def _send_long(
    session: aiohttp.ClientSession, endpoint: Endpoint, *, num_words: int, seed: str
) -> RecordedStream:
    body = make_long_prompt(endpoint.model, num_words=num_words, max_tokens=8, seed=seed)
    long = RecordedStream(0)
    await record(session, endpoint.base_url, body, long)
    return long


async def _until_all_have(streams: Sequence[RecordedStream], num_pieces: int) -> None:
    async with asyncio.timeout(_TIMEOUT_S):
        while any(len(stream.pieces) < num_pieces for stream in streams):  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)


async def measure_rounds(*, rounds: int, num_words: int) -> list[Stall]:
    stalls = []
    async with running(product()) as endpoint:
        await warm_up(endpoint, num_clients=NUM_STREAMS, seed="stall")
        start = ProcessorTimes.now(endpoint.pid)
        for number in range(rounds):
            stall = await _measure_stall(endpoint, num_words=num_words, seed=f"stall/{number}")
            stalls.append(stall)
            print(stall.describe(), flush=True)
        print(ProcessorTimes.now(endpoint.pid).describe_since(start))
    return stalls


def main() -> int:
    """Prints a line a round and the median; 1 where it is over the target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--num-words", type=int, default=3970, help="of the prompt (3970)")
    options = parser.parse_args()
    print(this_machine().describe())
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            stalls = runner.run(measure_rounds(rounds=options.rounds, num_words=options.num_words))
        except (ServerError, StreamError, TimeoutError) as error:
            print(f"stall: {error or 'the streams did not run'}", file=sys.stderr)
            return 1
    ratio = statistics.median(stall.ratio for stall in stalls)
    print(f"median ratio {ratio:.2f}, the target is {MAX_RATIO}")
    return int(ratio > MAX_RATIO)


if __name__ == "__main__":
    sys.exit(main())
