"""What schemas that cannot be compiled do to streams that run: `python -m tests.bench.bad_schemas`.

Eight streams decode; then ten schemas arrive that each take all the computing time a constraint
may have. Prints the p99 of the time between pieces of text of the eight, in turns without and with
the ten, and the ratio; and how long a good new schema waits for its first token among the ten.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
import uvloop

from telemetry.load import percentile
from tests.bench.client import client_session, record
from tests.bench.machine import this_machine
from tests.bench.measure import warm_up
from tests.bench.servers import Endpoint, ServerError, product, running
from tests.bench.stall import gaps_within
from tests.bench.streams import RecordedStream, StreamError, read_answer, text_arrivals_ns
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
    good_ttft_ms: float
    refusals: dict[str, int]

    @property
    def ratio(self) -> float:
        return self.beside_p99_ms / self.alone_p99_ms

    def describe(self) -> str:
        return (
            f"p99 {self.alone_p99_ms:.1f} ms alone, {self.beside_p99_ms:.1f} ms beside bad schemas,"
            f" ratio {self.ratio:.2f}; a good new schema had its first token after"
            f" {self.good_ttft_ms:.0f} ms; answers in the window: {self.refusals}"
        )


def bad_schema(seed: str) -> dict[str, Any]:
    """Short, and no time is enough for it: thirty alternatives of which exactly one may hold."""
    return {
        "oneOf": [
            {
                "type": "object",
                "properties": {f"{seed}k{number}": {"type": "integer"}, f"j{number}": {}},
                "required": [f"{seed}k{number}"],
            }
            for number in range(30)
        ]
    }


def _schema_body(endpoint: Endpoint, schema: dict[str, Any]) -> dict[str, Any]:
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    (body,) = make_bodies("short", endpoint.model, num_requests=1, seed="schema")
    return body | {"max_tokens": 16, "response_format": wanted}


async def _send_bad(
    session: aiohttp.ClientSession, endpoint: Endpoint, body: bytes, codes: dict[str, int]
) -> None:
    url = f"{endpoint.base_url}/chat/completions"
    async with session.post(
        url, data=body, headers={"content-type": "application/json"}
    ) as response:
        is_refused = response.status != 200
        code = (await response.json())["error"]["code"] if is_refused else "200"
    codes[code] = codes.get(code, 0) + 1


async def _measure_round(endpoint: Endpoint, *, seed: str) -> Round:
    bodies = make_bodies("short", endpoint.model, num_requests=NUM_STREAMS, seed=seed)
    streams = [RecordedStream(0) for _ in bodies]
    bad = [
        json.dumps(_schema_body(endpoint, bad_schema(f"{seed}/{number}/"))).encode()
        for number in range(NUM_BAD)
    ]
    codes: dict[str, int] = {}
    async with client_session() as session:
        tasks = [
            asyncio.create_task(
                record(
                    session,
                    endpoint.base_url,
                    body | {"max_tokens": _MAX_TOKENS, "ignore_eos": True},
                    stream,
                )
            )
            for body, stream in zip(bodies, streams, strict=True)
        ]
        try:
            await _until_all_have(streams, _WARM_TOKENS)
            alone_ns = time.perf_counter_ns()
            await asyncio.sleep(_WINDOW_S)
            beside_ns = time.perf_counter_ns()
            tasks += [
                asyncio.create_task(_send_bad(session, endpoint, body, codes)) for body in bad
            ]
            await asyncio.sleep(_WINDOW_S / 4)
            good = RecordedStream(0)
            properties = {f"good-{seed}": {"type": "string", "maxLength": 5}}
            body = _schema_body(
                endpoint,
                {"type": "object", "properties": properties, "additionalProperties": False},
            )
            await record(session, endpoint.base_url, body, good)
            await asyncio.sleep(max(0.0, beside_ns / 1e9 + _WINDOW_S - time.perf_counter()))
            end_ns = time.perf_counter_ns()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    answer = read_answer(good)
    if answer.timing is None:
        raise StreamError("the good schema was answered without text")
    return Round(
        _p99(streams, alone_ns, beside_ns),
        _p99(streams, beside_ns, end_ns),
        answer.timing.ttft_s * 1e3,
        codes,
    )


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
            measured.append(await _measure_round(endpoint, seed=f"r{number}"))
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
