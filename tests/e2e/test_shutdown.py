"""The end of a server: SIGTERM drains, kill -9 leaves no runtime behind."""

import asyncio
import signal
from pathlib import Path

import httpx2
import pytest

from tests.conformance.target import Target
from tests.e2e.conftest import EXACT
from tests.e2e.processes import ended, runtime_child, watched
from tests.e2e.scrape import until_running
from tests.e2e.server_process import POLL_S, serving
from tests.sse_machine import check_chat_stream

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

CHAT = "/v1/chat/completions"
GONE_WITHIN_S = 30.0
# The signal's default action ends the process once everything is in order.
TERMINATED = -signal.SIGTERM
CHUNK = b'"delta":{"content"'


async def until_refused(target: Target) -> int | None:
    """The first answer to a new client that is none: a status, or None for a refused connection."""
    async with asyncio.timeout(GONE_WITHIN_S):
        while True:
            try:
                async with target.http() as client:
                    status = (await client.get("/ready")).status_code
            except httpx2.ConnectError:
                return None
            if status != 200:
                return status
            await asyncio.sleep(POLL_S)


def num_chunks(body: bytes) -> int:
    return body.count(CHUNK)


async def test_sigterm_lets_a_stream_finish_and_refuses_new_clients(tiny_model: Path) -> None:
    with serving(*EXACT, model=str(tiny_model)) as (server, target):
        body = target.chat(
            max_tokens=800, ignore_eos=True, stream=True, stream_options={"include_usage": True}
        )
        with watched(runtime_child(server.pid)) as runtime:
            async with target.http() as client, client.stream("POST", CHAT, json=body) as response:
                parts = response.aiter_bytes()
                seen = await anext(parts)
                server.signal(signal.SIGTERM)
                refusal = await until_refused(target)
                num_before = num_chunks(seen)
                async for part in parts:
                    seen += part
            code = await asyncio.to_thread(server.wait, GONE_WITHIN_S)
            assert await ended(runtime, timeout_s=GONE_WITHIN_S)
    assert refusal in (None, 503)
    assert num_chunks(seen) > num_before, "the stream was over before the signal"
    streamed = check_chat_stream(seen, includes_usage=True)
    assert streamed.finish_reasons == ["length"]
    assert streamed.usage is not None
    assert streamed.usage["completion_tokens"] == 800
    assert code == TERMINATED
    assert "Traceback" not in server.output()


async def test_requests_that_outlast_the_drain_get_an_error_and_the_server_ends(
    tiny_model: Path,
) -> None:
    with serving(*EXACT, "--drain-timeout-s", "1", model=str(tiny_model)) as (server, target):
        body = target.chat(max_tokens=30_000, ignore_eos=True)
        with watched(runtime_child(server.pid)) as runtime:
            async with target.http() as client:
                tasks = [
                    asyncio.create_task(client.post(CHAT, json={**body, "stream": is_stream}))
                    for is_stream in (False, True)
                ]
                await until_running(client, 2)
                server.signal(signal.SIGTERM)
                whole, streamed = await asyncio.gather(*tasks)
            code = await asyncio.to_thread(server.wait, GONE_WITHIN_S)
            assert await ended(runtime, timeout_s=GONE_WITHIN_S)
    assert code == TERMINATED
    assert (whole.status_code, streamed.status_code) == (503, 200)
    assert whole.json()["error"] == check_chat_stream(streamed.content).error
    assert "stopping" in whole.json()["error"]["message"]


async def test_kill_9_of_the_gateway_ends_the_runtime(tiny_model: Path) -> None:
    with serving(*EXACT, model=str(tiny_model)) as (server, target):
        with watched(runtime_child(server.pid)) as runtime:
            server.signal(signal.SIGKILL)
            assert await ended(runtime, timeout_s=GONE_WITHIN_S)
