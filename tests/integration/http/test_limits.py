"""How much is accepted at once, and what is said to the rest."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from gateway import body_reader
from gateway.validation import decode_object
from tests.gateway_harness import (
    CHAT,
    COMPLETIONS,
    chat,
    completion,
    error_of,
    in_process,
    make_gateway,
)
from tests.waiting import until


async def test_of_64_requests_exactly_24_are_refused_and_the_others_finish() -> None:
    gateway = make_gateway(max_running=8, max_queue=32)
    gateway.engine.hold("queue")
    async with in_process(gateway) as client:
        requests = [
            asyncio.create_task(client.post(CHAT, json=chat(stream=index % 2 == 0)))
            for index in range(64)
        ]
        await until(lambda: sum(request.done() for request in requests) == 24)
        await until(lambda: len(gateway.engine.submitted) == 40)
        gateway.engine.release()
        responses = await asyncio.gather(*requests)
    assert sorted(response.status_code for response in responses) == [200] * 40 + [503] * 24
    assert gateway.engine.open_requests == set()


async def test_each_choice_of_each_prompt_takes_a_place() -> None:
    gateway = make_gateway(max_running=2, max_queue=6)
    gateway.engine.hold("queue")
    async with in_process(gateway) as client:
        first = asyncio.create_task(client.post(COMPLETIONS, json=completion(["a", "b"], n=3)))
        await until(lambda: len(gateway.engine.submitted) == 2)
        refused = await client.post(CHAT, json=chat(n=3))
        fitting = asyncio.create_task(client.post(CHAT, json=chat(n=2)))
        await until(lambda: len(gateway.engine.submitted) == 3)
        gateway.engine.release()
        assert [(await first).status_code, (await fitting).status_code] == [200, 200]
    assert (refused.status_code, error_of(refused)["code"]) == (503, "server_is_overloaded")


async def test_refusal_says_when_to_come_back() -> None:
    gateway = make_gateway(max_running=1, max_queue=0)
    gateway.engine.hold("queue")
    async with in_process(gateway) as client:
        first = asyncio.create_task(client.post(CHAT, json=chat()))
        await until(lambda: bool(gateway.engine.submitted))
        refused = await client.post(CHAT, json=chat())
        gateway.engine.release()
        assert (await first).status_code == 200
    assert (refused.status_code, error_of(refused)["code"]) == (503, "server_is_overloaded")
    assert int(refused.headers["retry-after"]) >= 1


async def test_compiling_requests_count() -> None:
    gateway = make_gateway(max_running=1, max_queue=0)
    gateway.probe.is_held = True
    async with in_process(gateway) as client:
        compiling = asyncio.create_task(
            client.post(CHAT, json=chat(structured_outputs={"regex": "a"}))
        )
        await gateway.probe.reached.wait()
        refused = await client.post(CHAT, json=chat())
        compiling.cancel()
        await asyncio.wait([compiling])
        accepted = await client.post(CHAT, json=chat())
    assert (refused.status_code, accepted.status_code) == (503, 200)


async def test_prompt_tokens_in_work_are_bounded() -> None:
    gateway = make_gateway(max_queue_tokens=60)
    gateway.engine.hold("queue")
    async with in_process(gateway) as client:
        first = asyncio.create_task(client.post(CHAT, json=chat("a" * 30)))
        await until(lambda: bool(gateway.engine.submitted))
        refused = await client.post(CHAT, json=chat("a" * 30))
        gateway.engine.release()
        assert (await first).status_code == 200
        # Alone, even a prompt beyond the limit is served: it would never be otherwise.
        alone = await client.post(CHAT, json=chat("a" * 70))
    assert (refused.status_code, alone.status_code) == (503, 200)


async def test_one_keys_limit_leaves_the_others_alone() -> None:
    gateway = make_gateway(api_keys=("one", "two"), max_requests_per_key=1)
    gateway.engine.hold("queue")

    async def post(client: httpx2.AsyncClient, key: str) -> httpx2.Response:
        headers = {"authorization": f"Bearer {key}"}
        return await client.post(CHAT, json=chat(), headers=headers)

    async with in_process(gateway) as client:
        first = asyncio.create_task(post(client, "one"))
        await until(lambda: len(gateway.engine.submitted) == 1)
        second = await post(client, "one")
        other = asyncio.create_task(post(client, "two"))
        await until(lambda: len(gateway.engine.submitted) == 2)
        gateway.engine.release()
        assert [(await first).status_code, (await other).status_code] == [200, 200]
    error = error_of(second)
    assert (second.status_code, error["code"]) == (429, "rate_limit_exceeded")
    assert error["type"] == "requests"
    assert int(second.headers["retry-after"]) >= 1


async def test_stopping_server_refuses_new_requests_and_is_not_ready() -> None:
    gateway = make_gateway()
    async with in_process(gateway) as client:
        assert (await client.get("/ready")).status_code == 200
        gateway.lifecycle.drain()
        ready, health = await client.get("/ready"), await client.get("/health")
        refused = await client.post(CHAT, json=chat())
    assert (ready.status_code, health.status_code, refused.status_code) == (503, 200, 503)
    assert error_of(ready)["code"] == "not_ready"
    assert int(refused.headers["retry-after"]) >= 1


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_large_body_is_read_beside_the_event_loop(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers = []

    def recording(body: bytes) -> dict[str, Any]:
        readers.append(threading.current_thread())
        return decode_object(body)

    monkeypatch.setattr(body_reader, "decode_object", recording)
    large = {"model": "tiny", "temperature": 5, "user": "x" * body_reader.MAX_INLINE_BYTES}
    async with in_process(make_gateway()) as client:
        await client.post(path, json={"model": "tiny"})
        refused = await client.post(path, json={**large, "prompt": "hi", "messages": []})
    assert readers[0] is threading.current_thread()
    assert readers[1] is not threading.current_thread()
    assert refused.status_code == 400
    assert "user" in refused.headers["x-radixgate-ignored"]


async def test_large_bodies_are_read_one_at_a_time_even_if_their_clients_leave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started, may_end = threading.Semaphore(0), threading.Event()

    def slow(body: bytes) -> dict[str, Any]:
        started.release()
        assert may_end.wait(timeout=10)
        return decode_object(body)

    monkeypatch.setattr(body_reader, "decode_object", slow)
    body = chat("x", user="x" * body_reader.MAX_INLINE_BYTES)
    async with in_process(make_gateway()) as client:
        leaving = asyncio.create_task(client.post(CHAT, json=body))
        assert await asyncio.to_thread(started.acquire, timeout=10)
        leaving.cancel()
        await asyncio.wait([leaving])
        staying = asyncio.create_task(client.post(CHAT, json=body))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not started.acquire(blocking=False)
        may_end.set()
        assert (await staying).status_code == 200
    assert started.acquire(blocking=False)


async def test_bodies_of_all_requests_together_are_bounded_and_leave_room_again() -> None:
    gateway = make_gateway(max_body_mb=0.001, max_running=100)
    gateway.engine.hold("queue")
    body = json.dumps(chat("x", user="x" * 900)).encode()
    num_fitting = 64 * int(0.001 * 2**20) // len(body)
    headers = {"content-type": "application/json"}
    async with in_process(gateway) as client:
        requests = [
            asyncio.create_task(client.post(CHAT, content=body, headers=headers)) for _ in range(90)
        ]
        await until(lambda: sum(one.done() for one in requests) == 90 - num_fitting)
        assert (await client.get("/v1/models")).status_code == 200
        await until(lambda: len(gateway.engine.submitted) == num_fitting)
        gateway.engine.release()
        responses = await asyncio.gather(*requests)
        again = await client.post(CHAT, content=body, headers=headers)
    refused = [response for response in responses if response.status_code == 503]
    assert (len(refused), again.status_code) == (90 - num_fitting, 200)
    assert error_of(refused[0])["code"] == "server_is_overloaded"
    assert refused[0].headers["retry-after"] == "1"


async def test_upload_that_never_ends_is_cut_off_at_the_deadline() -> None:
    async def drip() -> AsyncIterator[bytes]:
        yield b'{"model":'
        await asyncio.Event().wait()

    headers = {"content-type": "application/json"}
    gateway = make_gateway(request_timeout_s=0.05)
    async with in_process(gateway) as client:
        response = await client.post(CHAT, content=drip(), headers=headers)
    assert (response.status_code, error_of(response)["code"]) == (408, "request_timeout")
    assert response.headers["connection"] == "close"
