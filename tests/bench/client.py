"""Sends bodies to a server from a fixed number of clients and records what comes back.

A closed loop: each client sends its next request when its last answer has ended. Connections are
not reused, so that no server gains from keeping them.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp

from telemetry.answer_stream import Answer, RecordedStream, read_answer
from tests.bench.workloads import Body

_REQUEST_TIMEOUT_S = 1800.0


@dataclass(frozen=True, slots=True)
class RecordedLoad:
    """All streams of one load. `client_cpu` is the share of one core that this process took."""

    streams: tuple[RecordedStream, ...]
    wall_s: float
    client_cpu: float


@asynccontextmanager
async def client_session(api_key: str | None = None) -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(force_close=True, limit=0)
    timeout = aiohttp.ClientTimeout(total=_REQUEST_TIMEOUT_S)
    headers = {"Authorization": f"Bearer {api_key}"} if api_key is not None else {}
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, headers=headers
    ) as session:
        yield session


async def run_load(base_url: str, bodies: Sequence[Body], *, num_clients: int) -> RecordedLoad:
    """Sends all bodies, in order, `num_clients` at a time."""
    waiting = iter(bodies)
    streams: list[RecordedStream] = []
    async with client_session() as session:

        async def send_all() -> None:
            for body in waiting:
                stream = RecordedStream(time.perf_counter_ns())
                streams.append(stream)
                await record(session, base_url, body, stream)

        start_s, start_cpu_s = time.perf_counter(), time.process_time()
        async with asyncio.TaskGroup() as clients:
            for _ in range(num_clients):
                clients.create_task(send_all())
        wall_s = time.perf_counter() - start_s
        client_cpu = (time.process_time() - start_cpu_s) / wall_s
    return RecordedLoad(tuple(streams), wall_s, client_cpu)


async def record(
    session: aiohttp.ClientSession, base_url: str, body: Body, stream: RecordedStream
) -> None:
    """Fills `stream`, whose clock starts now, until the answer ends or fails."""
    stream.start_ns = time.perf_counter_ns()
    try:
        async with session.post(f"{base_url}/chat/completions", json=body) as reply:
            stream.status = reply.status
            async for data in reply.content.iter_any():
                stream.pieces.append((time.perf_counter_ns(), data))
    except (aiohttp.ClientError, TimeoutError) as error:
        stream.failure = f"{type(error).__name__}: {error}"


async def ask(session: aiohttp.ClientSession, base_url: str, body: Body) -> Answer:
    """One request to its end. Raises: StreamError."""
    stream = RecordedStream(0)
    await record(session, base_url, body, stream)
    return read_answer(stream)
