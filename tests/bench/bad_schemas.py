"""What schemas that cannot be compiled do to streams that run: `python -m tests.bench.bad_schemas`.

Eight streams decode; then ten schemas arrive that each take all the computing time a constraint
may have. Prints the p99 of the time between pieces of text of the eight, in turns without and with
the ten, and the ratio; and how long a good new schema waits for its first token among the ten.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import uvloop

from telemetry.answer_stream import RecordedStream, StreamError, read_answer, text_arrivals_ns
from telemetry.load import percentile
from tests.bench.client import client_session, record
from tests.bench.machine import this_machine
from tests.bench.measure import warm_up
from tests.bench.servers import Endpoint, ServerError, product, running
from tests.bench.stall import gaps_within
from tests.bench.workloads import make_bodies

NUM_STREAMS = 8
NUM_BAD = 10
# The target of this project.
MAX_RATIO = 1.2
_WARM_TOKENS = 32
_MAX_TOKENS = 6000
_WINDOW_S = 6.0
_TIMEOUT_S = 120.0
_POLL_S = 0.01


@dataclass(frozen=True, slots=True)
class Round:
    """p99 in ms of the streams' gaps without and with bad schemas. `refusals` counts the answers
    that the ten had in the window, by code."""

    alone_p99_ms: float
    beside_p99_ms: float
    alone_ttft_ms: float
    beside_ttft_ms: float
    refusals: dict[str, int]

    @property
    def ratio(self) -> float:
        return self.beside_p99_ms / self.alone_p99_ms

    def describe(self) -> str:
        return (
            f"p99 {self.alone_p99_ms:.1f} ms alone, {self.beside_p99_ms:.1f} ms beside bad schemas,"
            f" ratio {self.ratio:.2f}; a good new schema had its first token after"
            f" {self.alone_ttft_ms:.0f} and {self.beside_ttft_ms:.0f} ms; answers in the window:"
            f" {self.refusals}"
        )


def bad_schema(seed: str) -> dict[str, Any]:
    """Short, and no time is enough for it: thirty alternatives of which exactly one may hold."""
    return {
        "oneOf": [
            {
                "type": "object",
                "properties": {
                    f"{seed}k{number}": {"type": "integer"},
                    f"{seed}j{number}": {"type": "string"},
                },
                "required": [f"{seed}k{number}"],
            }
            for number in range(30)
        ]
    }


def _schema_body(endpoint: Endpoint, schema: dict[str, Any]) -> dict[str, Any]:
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    (body,) = make_bodies("short", endpoint.model, num_requests=1, seed="schema")
    return body | {"max_tokens": 16, "response_format": wanted}


def _whole(body: dict[str, Any]) -> dict[str, Any]:
    """The same request without a stream, whose keep-alives would begin an answer."""
    return {name: value for name, value in body.items() if not name.startswith("stream")}


async def _send_bad(
    session: aiohttp.ClientSession,
    endpoint: Endpoint,
    body: dict[str, Any],
    codes: dict[str, int],
) -> None:
    url = f"{endpoint.base_url}/chat/completions"
    async with session.post(url, json=body) as response:
        is_refused = response.status != 200
        code = (await response.json())["error"]["code"] if is_refused else "200"
    codes[code] = codes.get(code, 0) + 1


async def _measure_round(endpoint: Endpoint, *, seed: str, bad_first: bool) -> Round:
    """Each half over the same tokens of fresh streams, as a step's time grows with them."""
    codes: dict[str, int] = {}
    measured = {}
    for has_bad in (bad_first, not bad_first):
        async with client_session() as session:
            half = _Half(session, endpoint, seed=f"{seed}/{has_bad}")
            async with half.streaming():
                measured[has_bad] = await half.measure(codes if has_bad else None)
    (alone_ms, alone_ttft_ms), (beside_ms, beside_ttft_ms) = measured[False], measured[True]
    return Round(alone_ms, beside_ms, alone_ttft_ms, beside_ttft_ms, codes)


class _Half:
    """Eight streams for some seconds, beside ten bad schemas or not."""

    def __init__(self, session: aiohttp.ClientSession, endpoint: Endpoint, *, seed: str) -> None:
        self._session = session
        self._endpoint = endpoint
        self._seed = seed
        self._streams = [RecordedStream(0) for _ in range(NUM_STREAMS)]
        self._tasks: list[asyncio.Task[None]] = []

    @asynccontextmanager
    async def streaming(self) -> AsyncIterator[None]:
        model, endless = self._endpoint.model, {"max_tokens": _MAX_TOKENS, "ignore_eos": True}
        bodies = make_bodies("short", model, num_requests=NUM_STREAMS, seed=self._seed)
        for body, stream in zip(bodies, self._streams, strict=True):
            self._begin(record(self._session, self._endpoint.base_url, body | endless, stream))
        try:
            await _until_all_have(self._streams, _WARM_TOKENS)
            yield
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def measure(self, codes: dict[str, int] | None) -> tuple[float, float]:
        """The p99 of the gaps, and when the good schema had its first token."""
        start_ns = time.perf_counter_ns()
        if codes is not None:
            for number in range(NUM_BAD):
                schema = bad_schema(f"{self._seed}/{number}/")
                body = _whole(_schema_body(self._endpoint, schema))
                self._begin(_send_bad(self._session, self._endpoint, body, codes))
        ttft_ms = await self._good_ttft_ms()
        await asyncio.sleep(max(0.0, start_ns / 1e9 + _WINDOW_S - time.perf_counter()))
        return _p99(self._streams, start_ns, time.perf_counter_ns()), ttft_ms

    async def _good_ttft_ms(self) -> float:
        properties = {f"good-{self._seed}": {"type": "string", "maxLength": 5}}
        schema = {"type": "object", "properties": properties, "additionalProperties": False}
        good = RecordedStream(0)
        body = _schema_body(self._endpoint, schema)
        await record(self._session, self._endpoint.base_url, body, good)
        timing = read_answer(good).timing
        if timing is None:
            raise StreamError("the good schema was answered without text")
        return timing.ttft_s * 1e3

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))


def _p99(streams: Sequence[RecordedStream], start_ns: int, end_ns: int) -> float:
    """Raises: StreamError where a stream ended too early."""
    arrivals = [text_arrivals_ns(stream) for stream in streams]
    if any(times[-1] < end_ns - 10**9 for times in arrivals):
        raise StreamError("a stream ended before all was measured")
    p99 = percentile(
        [gap for times in arrivals for gap in gaps_within(times, start_ns, end_ns)], 0.99
    )
    assert p99 is not None
    return p99


async def _until_all_have(streams: Sequence[RecordedStream], num_pieces: int) -> None:
    async with asyncio.timeout(_TIMEOUT_S):
        while any(len(stream.pieces) < num_pieces for stream in streams):  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)


async def measure_rounds(rounds: int) -> list[Round]:
    measured = []
    async with running(product()) as endpoint:
        await warm_up(endpoint, num_clients=NUM_STREAMS, seed="bad")
        for number in range(rounds):
            measured.append(
                await _measure_round(endpoint, seed=f"r{number}", bad_first=number % 2 == 1)
            )
            print(measured[-1].describe(), flush=True)
    return measured


def main() -> int:
    """Prints a line a round and the median; 1 where it is over the target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(this_machine().describe())
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            measured = runner.run(measure_rounds(options.rounds))
        except (ServerError, StreamError, TimeoutError) as error:
            print(f"bad_schemas: {error or 'the streams did not run'}", file=sys.stderr)
            return 1
    ratio = statistics.median(one.ratio for one in measured)
    print(f"median ratio {ratio:.2f}, the target is {MAX_RATIO}")
    return int(ratio > MAX_RATIO)


if __name__ == "__main__":
    sys.exit(main())
