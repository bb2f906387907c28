"""kill -9 of the runtime under load: every client hears of it, and the server heals by itself."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.conformance.target import Target
from tests.e2e.conftest import EXACT
from tests.e2e.processes import runtime_child
from tests.e2e.scrape import scrape, until_running
from tests.e2e.server_process import ServerProcess, greedy_text, serving, until_status
from tests.sse_machine import check_chat_stream

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

CHAT = "/v1/chat/completions"
NUM_EACH = 4
HEARD_WITHIN_S = 2.0
HEALED_WITHIN_S = 60.0
# Far longer than the test: what runs when the runtime is killed did not end by itself.
ENDLESS = {"max_tokens": 30_000, "ignore_eos": True}


@pytest.fixture(scope="module")
def victim(tiny_model: Path) -> Iterator[tuple[ServerProcess, Target]]:
    with serving(*EXACT, model=str(tiny_model)) as started:
        yield started


class OpenStream:
    """A streamed request of which the test has seen some text."""

    def __init__(self, response: httpx2.Response) -> None:
        self.status = response.status_code
        self.body = b""
        self._parts: AsyncIterator[bytes] = response.aiter_bytes()

    async def read_until(self, mark: bytes) -> None:
        while mark not in self.body:
            self.body += await anext(self._parts)

    async def read_rest(self) -> None:
        async for part in self._parts:
            self.body += part


async def stream(client: httpx2.AsyncClient, body: dict[str, Any]) -> OpenStream:
    request = client.build_request("POST", CHAT, json={**body, "stream": True})
    opened = OpenStream(await client.send(request, stream=True))
    await opened.read_until(b'"content":"')
    return opened


async def test_kill_9_is_heard_within_2_s_by_each_of_8_and_the_server_is_ready_again(
    victim: tuple[ServerProcess, Target],
) -> None:
    server, target = victim
    before = await greedy_text(target)
    async with target.http() as client:
        bodies = [target.chat(f"Count to {n}.", **ENDLESS) for n in range(2 * NUM_EACH)]
        wholes = [asyncio.create_task(client.post(CHAT, json=b)) for b in bodies[:NUM_EACH]]
        streams = [await stream(client, b) for b in bodies[NUM_EACH:]]
        await until_running(client, 2 * NUM_EACH)
        killed_pid = runtime_child(server.pid)
        os.kill(killed_pid, signal.SIGKILL)
        async with asyncio.timeout(HEARD_WITHIN_S):
            responses = await asyncio.gather(*wholes)
            await asyncio.gather(*(opened.read_rest() for opened in streams))
        for response in responses:
            check_died(response.status_code, response.json()["error"])
            assert int(response.headers["retry-after"]) >= 1
        for opened in streams:
            check_died(503, check_chat_stream(opened.body).error)
        await until_status(client, 503, timeout_s=HEARD_WITHIN_S)
        await until_status(client, 200, timeout_s=HEALED_WITHIN_S)
        assert (await scrape(client))["radixgate_requests_running"] == 0
    assert runtime_child(server.pid) != killed_pid
    assert await greedy_text(target) == before


def check_died(status: int, error: dict[str, Any] | None) -> None:
    assert error is not None, "the answer ended as if nothing had happened"
    assert set(error) == {"message", "type", "param", "code"}
    assert (status, error["type"], error["code"]) == (503, "server_error", "engine_died")


async def test_requests_while_the_runtime_is_down_are_refused_at_once(
    victim: tuple[ServerProcess, Target],
) -> None:
    server, target = victim
    async with target.http() as client:
        os.kill(runtime_child(server.pid), signal.SIGKILL)
        await until_status(client, 503, timeout_s=HEARD_WITHIN_S)
        response = await client.post(CHAT, json=target.chat(stream=True))
        health = await client.get("/health")
        models = await client.get("/v1/models")
        await until_status(client, 200, timeout_s=HEALED_WITHIN_S)
    assert response.status_code == 503
    assert response.json()["error"]["type"] == "server_error"
    assert int(response.headers["retry-after"]) >= 1
    assert (health.status_code, models.status_code) == (200, 200)
