"""/metrics of a real server against what its clients were told."""

import asyncio
from typing import Any

import httpx2
import pytest

from tests.conformance.target import Target
from tests.e2e.scrape import scrape, until_running
from tests.sse_machine import check_chat_stream

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
TOKENS = ("prompt", "cached", "generated")


def counted(samples: dict[str, float]) -> dict[str, float]:
    return {name: samples[f"radixgate_{name}_tokens_total"] for name in TOKENS}


async def usage_of(client: httpx2.AsyncClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    response = await client.post(path, json=body)
    assert response.status_code == 200, response.text
    if body.get("stream"):
        usage = check_chat_stream(response.content, includes_usage=True).usage
    else:
        usage = response.json()["usage"]
    assert usage is not None
    return usage


async def test_token_counters_are_the_sum_of_all_usage(tiny_server: Target) -> None:
    t = tiny_server
    usage_wanted = {"stream_options": {"include_usage": True}}
    requests = [
        (CHAT, t.chat("One, two, three, four. " * 8, n=3, temperature=1.0, seed=1)),
        (CHAT, t.chat("One, two, three, four. " * 8, stream=True, **usage_wanted)),
        (CHAT, t.chat("Five, six. " * 20, stream=True, ignore_eos=True, **usage_wanted)),
        (CHAT, t.chat("Seven.", stop=["e", "a", "t"], max_tokens=40)),
        (CHAT, t.chat("Eight.", max_tokens=1)),
        (COMPLETIONS, t.completion(["Nine, ten. " * 10, "Nine, ten. " * 10], n=2)),
        (COMPLETIONS, t.completion([[5, 6, 7] * 20, [5, 6, 7] * 20], logprobs=2)),
        (CHAT, t.chat("Eleven.", structured_outputs={"choice": ["up", "down"]})),
    ]
    async with t.http() as client:
        before = await scrape(client)
        told = [await usage_of(client, path, body) for path, body in requests]
        told += await asyncio.gather(*(usage_of(client, path, body) for path, body in requests))
        after = await scrape(client)
    sums = {
        "prompt": sum(usage["prompt_tokens"] for usage in told),
        "cached": sum(usage["prompt_tokens_details"]["cached_tokens"] for usage in told),
        "generated": sum(usage["completion_tokens"] for usage in told),
    }
    old, new = counted(before), counted(after)
    assert {name: new[name] - old[name] for name in TOKENS} == sums
    assert 0 < sums["cached"] < sums["prompt"]


async def test_pages_add_up_and_none_is_held_when_nothing_runs(tiny_server: Target) -> None:
    endless = tiny_server.chat(max_tokens=30_000, ignore_eos=True)
    async with tiny_server.http() as client:
        running = [asyncio.create_task(client.post(CHAT, json=endless)) for _ in range(3)]
        await until_running(client, 3)
        busy = await scrape(client)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await until_running(client, 0)
        idle = await scrape(client)
    assert busy["radixgate_kv_pages/held"] > 0
    for samples in (busy, idle):
        pages = [samples[f"radixgate_kv_pages/{state}"] for state in ("free", "cached", "held")]
        assert sum(pages) == samples["radixgate_kv_pages_capacity"]
    assert idle["radixgate_kv_pages/held"] == 0
    assert idle["radixgate_kv_pages_locked"] == 0
    assert idle["radixgate_kv_pages/cached"] > 0


async def test_requests_are_counted_by_route_and_status(tiny_server: Target) -> None:
    line = 'radixgate_requests_total{outcome="%s",route="/v1/chat/completions",status="%d"} '

    async def count(client: httpx2.AsyncClient, outcome: str, status: int) -> float:
        text = (await client.get("/metrics")).text
        prefix = line % (outcome, status)
        lines = [line for line in text.splitlines() if line.startswith(prefix)]
        return sum(float(line.removeprefix(prefix)) for line in lines)

    async with tiny_server.http() as client:
        ok, bad = await count(client, "ok", 200), await count(client, "rejected", 400)
        await client.post(CHAT, json=tiny_server.chat())
        await client.post(CHAT, json=tiny_server.chat(temperature=9))
        assert await count(client, "ok", 200) == ok + 1
        assert await count(client, "rejected", 400) == bad + 1
