"""Faults under load that other servers were reported for: work that goes on for nobody, gauges that
stay, servers that seem to be well, traces that run into each other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx2
import pytest

from runtime.token_engine import EngineState
from telemetry import names
from telemetry.testing import in_memory_tracing
from tests.e2e.scrape import scrape
from tests.gateway_harness import (
    CHAT,
    Gateway,
    chat,
    error_of,
    in_process,
    make_gateway,
)
from tests.raw_client import connection, raw_request
from tests.sse_machine import check_chat_stream
from tests.waiting import until
from tests.whole_path import WholePath, byte_engine, serving

ENDLESS: dict[str, Any] = {"max_tokens": 1500, "ignore_eos": True, "seed": 1}


@asynccontextmanager
async def busy(
    num_clients: int, *, stream: bool
) -> AsyncIterator[tuple[WholePath, AsyncExitStack]]:
    """A server that computes for so many clients; the stack holds their connections."""
    engine = byte_engine(max_running=8, num_pages=600)
    async with serving(engine, max_running=8, max_queue=64) as server:
        async with AsyncExitStack() as clients:
            for number in range(num_clients):
                writer = await clients.enter_async_context(connection(server.base_url))
                body = chat(f"Client {number:02d} asks for a lot. " * 5, stream=stream, **ENDLESS)
                writer.write(raw_request(body))
            await until(lambda: len(engine.submitted) == num_clients)
            await until(lambda: engine.runtime.stats().generated_tokens > 20)
            yield server, clients


@pytest.mark.parametrize("stream", [False, True])
async def test_gauges_are_down_when_all_clients_have_left(stream: bool) -> None:
    """vllm#22545, #29928: running requests and used pages stayed as they were until the next step;
    llama.cpp#9273, #24496, #15232, vllm#54947: and went on, where nothing was streamed or they were
    in the queue."""
    async with busy(20, stream=stream) as (server, clients), server.client() as client:
        engine = server.engine
        engine.beat()
        await until(lambda: engine.stats.num_running + engine.stats.num_waiting == 20)
        before = await scrape(client)
        assert before["radixgate_requests_running"] > 1
        assert before["radixgate_requests_waiting"] > 1
        assert before["radixgate_kv_pages/held"] > 0
        await clients.aclose()
        await until(lambda: len(server.lost_at) == 20)
        await until(lambda: not engine.runtime.has_work())
        num_generated = engine.runtime.stats().generated_tokens
        engine.beat()
        await until(lambda: engine.stats.num_running == 0)
        after = await scrape(client)
        assert after["radixgate_requests_running"] == after["radixgate_requests_waiting"] == 0
        assert after["radixgate_kv_pages/held"] == after["radixgate_kv_pages_locked"] == 0
        free, cached = (after[f"radixgate_kv_pages/{state}"] for state in ("free", "cached"))
        assert free + cached == after["radixgate_kv_pages_capacity"]
        assert num_generated < 20 * 400, "it went on for nobody"
        text = (await client.get("/metrics")).text
        aborted = [line for line in text.splitlines() if 'outcome="aborted"' in line]
        assert sum(float(line.split()[-1]) for line in aborted) == 20
        engine.assert_idle()


async def ask(client: httpx2.AsyncClient, **parameters: Any) -> httpx2.Response:
    return await client.post(CHAT, json=chat(**parameters))


@pytest.mark.parametrize("state", set(EngineState) - {EngineState.READY})
async def test_a_server_whose_engine_is_gone_is_not_ready(state: EngineState) -> None:
    """vllm#36960, #39863, #36451, omlx#1884, gpustack#6203: 200 of everything while nothing was
    answered any more, or nothing was loaded yet."""
    gateway = make_gateway()
    async with in_process(gateway) as client:
        assert (await client.get("/ready")).status_code == 200
        gateway.engine.state = state
        ready = await client.get("/ready")
        gateway.engine.unavailable = "the engine is gone"
        refused = await ask(client)
    assert ready.status_code == 503
    assert error_of(ready)["message"]
    assert (refused.status_code, error_of(refused)["message"]) == (503, "the engine is gone")
    assert int(refused.headers["retry-after"]) >= 1


async def test_who_waits_for_an_engine_that_dies_gets_an_error_and_does_not_hang() -> None:
    """vllm#39863: requests in flight waited for ever, in the queue and in the middle of answers."""
    engine = byte_engine(max_running=2)
    async with serving(engine) as server, server.client() as client:
        engine.hold()
        asked = [
            asyncio.create_task(ask(client, stream=bool(number % 2), **ENDLESS))
            for number in range(6)
        ]
        await until(lambda: len(engine.submitted) == 6)
        for _ in range(20):
            await engine.step()
        stats = engine.runtime.stats()
        assert min(stats.num_running, stats.num_waiting, stats.generated_tokens) > 0
        engine.declare_lost("the runtime was killed")
        async with asyncio.timeout(2):
            answers = await asyncio.gather(*asked)
        ready = await client.get("/ready")
    for answer in answers:
        if answer.headers["content-type"] == "application/json":
            assert answer.status_code == 503
            error = error_of(answer)
        else:
            streamed = check_chat_stream(answer.content)
            assert streamed.error is not None
            error = streamed.error
        assert (error["type"], error["code"]) == ("server_error", "engine_died")
    assert ready.status_code == 503


def traceparent(number: int) -> str:
    return f"00-{number:032x}-{number:016x}-01"


def traces_of(gateway: Gateway) -> dict[str, set[str]]:
    """The names of the spans of each trace."""
    found: dict[str, set[str]] = {}
    for span in gateway.spans.get_finished_spans():
        context = span.get_span_context()
        assert context is not None
        found.setdefault(f"{context.trace_id:032x}", set()).add(span.name)
    return found


@pytest.mark.parametrize("header", ["traceparent", "Traceparent", "TRACEPARENT"])
async def test_requests_at_the_same_time_keep_to_their_own_traces(header: str) -> None:
    """vllm#38672, #38678, #32162: one had the context of another, or none for the letters' case."""
    gateway = make_gateway()
    gateway.engine.hold("decode")
    async with in_process(gateway) as client:
        asked = [
            asyncio.create_task(
                client.post(
                    CHAT,
                    json=chat(stream=bool(number % 2)),
                    headers={header: traceparent(number)} if number else {},
                )
            )
            for number in range(6)
        ]
        await until(lambda: len(gateway.engine.submitted) == 6)
        gateway.engine.release()
        answers = await asyncio.gather(*asked)
    told = [answer.headers["traceparent"].split("-")[1] for answer in answers]
    assert told[1:] == [f"{number:032x}" for number in range(1, 6)]
    assert told[0] not in told[1:]
    traces = traces_of(gateway)
    assert set(traces) == set(told)
    assert all({"tokenize", "queue", "decode", "chat tiny"} <= spans for spans in traces.values())
    sent = {submit.trace.traceparent.split("-")[1] for submit in gateway.engine.submitted
            if submit.trace is not None}  # fmt: skip
    assert sent == set(told)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_that_was_left_has_a_span_that_ends_as_aborted(stream: bool) -> None:
    """vllm#32162: it had no span at all."""
    tracing, spans = in_memory_tracing()
    engine = byte_engine()
    async with serving(engine, tracing=tracing) as server:
        async with connection(server.base_url) as writer:
            headers = {"traceparent": traceparent(7)}
            writer.write(raw_request(chat(stream=stream, **ENDLESS), headers=headers))
            await until(lambda: engine.runtime.stats().generated_tokens > 3)
        await until(lambda: any(s.name.startswith("POST") for s in spans.get_finished_spans()))
        await until(lambda: not engine.runtime.has_work())
        engine.assert_idle()
    (root,) = [span for span in spans.get_finished_spans() if span.name.startswith("POST")]
    context = root.get_span_context()
    assert context is not None
    assert context.trace_id == 7
    assert (root.attributes or {})[names.ATTR_OUTCOME] == "aborted"
    assert root.end_time is not None
