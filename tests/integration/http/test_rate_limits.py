"""What a tenant may use a minute, as its clients see it."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gateway.rate_limits import RateLimits
from tests.gateway_harness import (
    CHAT,
    COMPLETIONS,
    Gateway,
    chat,
    completion,
    error_of,
    in_process,
    listening,
    make_gateway,
)
from tests.key_files import key_file
from tests.raw_client import connection, raw_request
from tests.valkey_server import ValkeyServer
from tests.waiting import until

KEY = {"authorization": "Bearer a"}
# A chat of "hi" with the byte tokenizer, and "Hello, world!" with its end.
PROMPT, ANSWER = 21, 14


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("gateway.app.RateLimits", partial(RateLimits, clock=clock))
    return clock


def limited(folder: Path, settings: Mapping[str, Any] | None = None, **limits: int) -> Gateway:
    path = key_file(folder, {"a": {"tenant": "team", **limits}, "free": {"tenant": "free"}})
    return make_gateway(key_file=str(path), **(settings or {}))


@asynccontextmanager
async def caller(gateway: Gateway) -> AsyncIterator[httpx2.AsyncClient]:
    """A client with the limited key."""
    async with in_process(gateway) as client:
        client.headers.update(KEY)
        yield client


def limits_of(response: httpx2.Response) -> dict[str, str]:
    prefix = "x-ratelimit-"
    return {
        name.removeprefix(prefix): value
        for name, value in response.headers.items()
        if name.startswith(prefix)
    }


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("stream", [False, True])
async def test_answer_says_what_is_left(tmp_path: Path, stream: bool) -> None:
    gateway = limited(tmp_path, requests_per_minute=60, tokens_per_minute=600)
    async with caller(gateway) as client:
        response = await client.post(CHAT, json=chat(max_tokens=20, stream=stream))
        after = await client.get("/v1/models")
    assert response.status_code == 200
    held = PROMPT + 20
    assert limits_of(response) == {
        "limit-requests": "60",
        "remaining-requests": "59",
        "reset-requests": "1s",
        "limit-tokens": "600",
        "remaining-tokens": str(600 - held),
        "reset-tokens": f"{held / 10:.1f}s",
    }
    assert limits_of(after)["remaining-tokens"] == str(600 - PROMPT - ANSWER)
    assert limits_of(after)["remaining-requests"] == "59"


@pytest.mark.usefixtures("clock")
async def test_every_answer_of_a_limited_key_says_it_and_no_others(tmp_path: Path) -> None:
    gateway = limited(tmp_path, requests_per_minute=60)
    async with caller(gateway) as client:
        responses = [
            await client.get("/v1/models"),
            await client.get("/v1/nothing"),
            await client.post(CHAT, content=b"{"),
            await client.post(CHAT, json=chat() | {"model": "nope"}),
            await client.post(CHAT, json=chat(max_tokens=10_000)),
        ]
        free = await client.post(CHAT, json=chat(), headers={"authorization": "Bearer free"})
        stranger = await client.get("/v1/models", headers={"authorization": "Bearer x"})
        health = await client.get("/health")
    assert [response.status_code for response in responses] == [200, 404, 415, 404, 400]
    # What is refused for what it says after it was counted stays counted.
    left = [limits_of(response)["remaining-requests"] for response in responses]
    assert left == ["60", "60", "60", "60", "59"]
    assert all("limit-tokens" not in limits_of(response) for response in responses)
    for response in (free, stranger, health):
        assert limits_of(response) == {}


async def test_requests_over_the_limit_are_refused_until_there_is_room(
    tmp_path: Path, clock: Clock
) -> None:
    gateway = limited(tmp_path, requests_per_minute=2)
    async with caller(gateway) as client:
        assert [
            (await client.post(COMPLETIONS, json=completion())).status_code for _ in range(2)
        ] == [200, 200]
        clock.now += 7.5
        refused = await client.post(COMPLETIONS, json=completion(stream=True))
        clock.now += 22.4
        still = await client.post(CHAT, json=chat())
        clock.now += 0.1
        accepted = await client.post(CHAT, json=chat())
        metrics = (await client.get("/metrics")).text
    assert (refused.status_code, still.status_code, accepted.status_code) == (429, 429, 200)
    error = error_of(refused)
    assert (error["type"], error["code"]) == ("requests", "rate_limit_exceeded")
    assert "limit 2, used 2, requested 1. Please try again in 22.5s" in error["message"]
    assert refused.headers["retry-after"] == "23"
    assert refused.headers["retry-after-ms"] == "22500"
    assert limits_of(refused)["remaining-requests"] == "0"
    assert 'radixgate_rejected_total{reason="rate_limit_requests"} 2.0' in metrics


async def test_tokens_over_the_limit_are_refused_and_cost_no_request(
    tmp_path: Path, clock: Clock
) -> None:
    gateway = limited(tmp_path, requests_per_minute=600, tokens_per_minute=120)
    body = chat(max_tokens=74)
    async with caller(gateway) as client:
        first = await client.post(CHAT, json=body)
        refused = await client.post(CHAT, json=body)
        clock.now += 5  # of what the first used, 10 have drained by then
        accepted = await client.post(CHAT, json=body)
        metrics = (await client.get("/metrics")).text
    assert (first.status_code, refused.status_code, accepted.status_code) == (200, 429, 200)
    error = error_of(refused)
    assert (error["type"], error["code"]) == ("tokens", "rate_limit_exceeded")
    assert "limit 120, used 35, requested 95. Please try again in 5s." in error["message"]
    assert refused.headers["retry-after"] == "5"
    assert limits_of(refused)["remaining-requests"] == "599"
    assert limits_of(refused)["remaining-tokens"] == str(120 - PROMPT - ANSWER)
    assert 'radixgate_rejected_total{reason="rate_limit_tokens"} 1.0' in metrics
    assert len(gateway.engine.submitted) == 2


@pytest.mark.usefixtures("clock")
async def test_request_that_no_minute_has_room_for_is_told_so(tmp_path: Path) -> None:
    gateway = limited(tmp_path, requests_per_minute=60, tokens_per_minute=100)
    async with caller(gateway) as client:
        refused = await client.post(CHAT, json=chat(max_tokens=40, n=2))
        fitting = await client.post(CHAT, json=chat(max_tokens=39, n=2))
        long_prompt = await client.post(COMPLETIONS, json=completion("x" * 101, max_tokens=1))
    assert (refused.status_code, fitting.status_code, long_prompt.status_code) == (429, 200, 429)
    assert error_of(refused)["type"] == "tokens"
    assert "limit 100, requested 101" in error_of(refused)["message"]
    assert "lower max_tokens" in error_of(refused)["message"]
    assert "retry-after" not in refused.headers
    assert refused.headers["x-should-retry"] == "false"
    assert limits_of(refused)["remaining-tokens"] == "100"
    assert limits_of(refused)["remaining-requests"] == "60"


@pytest.mark.usefixtures("clock")
async def test_answer_of_no_declared_length_holds_a_guess_and_costs_what_it_has(
    tmp_path: Path,
) -> None:
    gateway = limited(tmp_path, tokens_per_minute=32)
    async with caller(gateway) as client:
        first = await client.post(CHAT, json=chat())
        after = await client.get("/v1/models")
    assert first.status_code == 200
    assert limits_of(first)["remaining-tokens"] == str(32 - PROMPT - 8)
    assert limits_of(after)["remaining-tokens"] == "0"
    overdrawn_s = (PROMPT + ANSWER) * 60 / 32
    assert limits_of(after)["reset-tokens"] == f"1m{overdrawn_s - 60:.3f}s"


@pytest.mark.usefixtures("clock")
async def test_client_that_leaves_pays_for_what_was_computed(tmp_path: Path) -> None:
    gateway = limited(tmp_path, tokens_per_minute=1000)
    gateway.engine.hold("decode")
    async with listening(gateway) as base_url:
        async with connection(base_url) as writer:
            body = chat(max_tokens=60, stream=True)
            writer.write(raw_request(body, headers=KEY))
            await until(lambda: len(gateway.engine.submitted) == 1)
        await until(lambda: not gateway.engine.open_requests)
        async with caller(gateway) as client:
            left = limits_of(await client.get("/v1/models"))["remaining-tokens"]
    assert left == str(1000 - PROMPT - 1)


@pytest.mark.usefixtures("clock")
async def test_request_that_the_server_has_no_room_for_costs_nothing(tmp_path: Path) -> None:
    settings = {"max_queue_tokens": 30}
    gateway = limited(tmp_path, settings, requests_per_minute=10, tokens_per_minute=1000)
    gateway.engine.hold("queue")
    async with caller(gateway) as client:
        running = asyncio.create_task(client.post(CHAT, json=chat(max_tokens=5)))
        await until(lambda: len(gateway.engine.submitted) == 1)
        refused = await client.post(CHAT, json=chat(max_tokens=5))
        gateway.engine.release()
        await running
    assert refused.status_code == 503
    assert limits_of(refused)["remaining-requests"] == "9"
    assert limits_of(refused)["remaining-tokens"] == str(1000 - PROMPT - 5)


@pytest.mark.usefixtures("clock")
async def test_choices_at_a_time_are_limited_by_tenant(tmp_path: Path) -> None:
    gateway = limited(tmp_path, max_concurrent=2)
    gateway.engine.hold("queue")
    async with caller(gateway) as client:
        running = asyncio.create_task(client.post(CHAT, json=chat(n=2)))
        await until(lambda: len(gateway.engine.submitted) == 1)
        refused = await client.post(CHAT, json=chat())
        never = await client.post(CHAT, json=chat(n=3))
        gateway.engine.release()
        assert (await running).status_code == 200
        metrics = (await client.get("/metrics")).text
    assert (refused.status_code, error_of(refused)["type"]) == (429, "requests")
    assert int(refused.headers["retry-after"]) >= 1
    assert (never.status_code, never.headers["x-should-retry"]) == (429, "false")
    assert 'radixgate_rejected_total{reason="rate_limit_concurrency"} 2.0' in metrics


async def test_browsers_may_read_the_headers(tmp_path: Path) -> None:
    gateway = limited(tmp_path, {"cors_origins": ("*",)}, requests_per_minute=5)
    async with caller(gateway) as client:
        response = await client.get("/v1/models", headers={"origin": "https://app.example"})
    exposed = response.headers["access-control-expose-headers"].split(", ")
    assert {f"x-ratelimit-{name}" for name in limits_of(response)} <= set(exposed)
    assert {"retry-after", "retry-after-ms", "x-should-retry"} <= set(exposed)


@asynccontextmanager
async def living(gateway: Gateway) -> AsyncIterator[httpx2.AsyncClient]:
    """As caller(), with the services that the app starts and stops."""
    async with gateway.app.router.lifespan_context(gateway.app), caller(gateway) as client:
        yield client


@pytest.mark.usefixtures("patient_with_redis")
async def test_servers_share_their_counters_in_redis(tmp_path: Path, valkey: ValkeyServer) -> None:
    settings = {"redis_url": valkey.url}
    limits = {"requests_per_minute": 3, "tokens_per_minute": 200}
    first, second = (limited(tmp_path, settings, **limits) for _ in range(2))
    async with living(first) as one, living(second) as other:
        answers = [
            await client.post(CHAT, json=chat(max_tokens=20)) for client in (one, other, one, other)
        ]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    left = [limits_of(answer)["remaining-requests"] for answer in answers]
    assert left == ["2", "1", "0", "0"]
    # Settled in Redis as well: three times what was held would not have fitted.
    assert int(limits_of(answers[2])["remaining-tokens"]) >= 200 - 2 * 35 - 41 - 1


@pytest.mark.usefixtures("patient_with_redis")
async def test_redis_that_dies_fails_no_request(tmp_path: Path, valkey: ValkeyServer) -> None:
    gateway = limited(tmp_path, {"redis_url": valkey.url}, requests_per_minute=2)
    async with living(gateway) as client:
        assert (await client.post(CHAT, json=chat())).status_code == 200
        valkey.stop()
        statuses = [(await client.post(CHAT, json=chat())).status_code for _ in range(3)]
        metrics = (await client.get("/metrics")).text
    # The server's own counters start with nothing used.
    assert statuses == [200, 200, 429]
    assert "radixgate_redis_failures_total 0.0" not in metrics


async def test_redis_that_is_not_there_at_the_start_stops_nothing(tmp_path: Path) -> None:
    gateway = limited(tmp_path, {"redis_url": "redis://127.0.0.1:1"}, requests_per_minute=1)
    async with living(gateway) as client:
        statuses = [(await client.post(CHAT, json=chat())).status_code for _ in range(2)]
    assert statuses == [200, 429]
