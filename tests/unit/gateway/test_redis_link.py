"""Calls to Redis are bounded, and a server that failed is left alone for a while."""

import asyncio
import logging
from contextlib import suppress
from typing import Any

import pytest

from gateway.redis_link import (
    FIRST_PAUSE_S,
    MAX_PAUSE_S,
    RedisLink,
    RedisUnavailable,
)
from prefix_cache.tiers.redis_url import RedisURLError
from tests.valkey_server import ValkeyServer

NOWHERE = "redis://127.0.0.1:1/0"


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def ping(redis: Any) -> Any:
    return await redis.ping()


async def never(_redis: Any) -> None:
    await asyncio.Event().wait()


async def unknown(redis: Any) -> Any:
    return await redis.execute_command("NOCOMMAND")


async def refused(link: RedisLink, command: Any = ping) -> str:
    with pytest.raises(RedisUnavailable) as caught:
        await link.call(command)
    return str(caught.value)


async def test_calls_are_answered_and_forgotten_scripts_are_sent_again(
    valkey: ValkeyServer,
) -> None:
    link = RedisLink(valkey.url, timeout_s=5)
    script = link.script("return redis.call('INCRBY', KEYS[1], ARGV[1])")
    assert link.key("a", "b") == "radixgate:a:b"
    assert await link.call(lambda _: script(keys=[link.key("n")], args=[3])) == 3
    assert await link.call(lambda redis: redis.get("radixgate:n")) == b"3"
    await link.call(lambda redis: redis.script_flush())
    assert await link.call(lambda _: script(keys=[link.key("n")], args=[4])) == 7
    await link.close()


async def test_after_a_failure_nothing_is_asked_until_the_pause_is_over(
    valkey: ValkeyServer, caplog: pytest.LogCaptureFixture
) -> None:
    clock, failures = Clock(), []
    link = RedisLink(
        valkey.url, timeout_s=5, clock=clock, on_failure=lambda: failures.append(clock.now)
    )
    await link.call(ping)
    valkey.stop()
    caplog.set_level(logging.INFO)
    assert "failed a moment ago" not in await refused(link)
    clock.now += FIRST_PAUSE_S - 0.01
    for _ in range(5):
        assert await refused(link) == "it failed a moment ago"
    assert (link.is_up, failures) == (False, [100.0])
    valkey.start()
    clock.now += 0.01
    assert await link.call(ping)
    assert link.is_up
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    await link.close()


async def test_pauses_grow_to_a_limit_and_the_log_has_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    link = RedisLink(NOWHERE, clock=clock)
    await refused(link)
    expected = FIRST_PAUSE_S
    for _ in range(8):
        clock.now += expected - 0.5
        assert await refused(link) == "it failed a moment ago"
        clock.now += 0.5
        assert await refused(link) != "it failed a moment ago"
        expected = min(MAX_PAUSE_S, 2 * expected)
    assert len(caplog.records) == 1


async def test_a_server_that_refuses_some_calls_only_is_left_alone_ever_longer(
    valkey: ValkeyServer, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    link = RedisLink(valkey.url, timeout_s=5, clock=clock)
    for _ in range(300):  # as two kinds of callers do for five minutes
        for command in (ping, unknown):
            with suppress(RedisUnavailable):
                await link.call(command)
        clock.now += 1
    # After 1, 2, 4, 8, 16 seconds and then every 30.
    assert 10 <= caplog.text.count("going on without it") <= 15
    clock.now += MAX_PAUSE_S
    await link.call(ping)
    clock.now += MAX_PAUSE_S
    assert "unknown command" in await refused(link, unknown)
    clock.now += FIRST_PAUSE_S  # it was well for so long that this is a failure of its own
    await link.call(ping)
    await link.close()


async def test_silent_server_costs_its_bound_and_no_more(valkey: ValkeyServer) -> None:
    link = RedisLink(valkey.url, timeout_s=5)
    await link.call(ping)
    valkey.freeze()
    try:
        started = asyncio.get_running_loop().time()
        with pytest.raises(RedisUnavailable, match="no answer in time"):
            await link.call(ping, timeout_s=0.02)
        assert 0.01 < asyncio.get_running_loop().time() - started < 4
    finally:
        valkey.thaw()
    await link.close()


async def test_only_one_call_tries_whether_redis_is_back(valkey: ValkeyServer) -> None:
    clock = Clock()
    link = RedisLink(valkey.url, clock=clock, timeout_s=5)
    with pytest.raises(RedisUnavailable):
        await link.call(never, timeout_s=0.001)
    clock.now += FIRST_PAUSE_S
    trial = asyncio.create_task(link.call(never))
    await asyncio.sleep(0)
    assert await refused(link) == "it failed a moment ago"
    trial.cancel()  # its request is gone: another one may try
    await asyncio.wait([trial])
    assert await link.call(ping)
    await link.close()


async def test_calls_under_way_when_it_fails_do_not_lengthen_the_pause() -> None:
    clock = Clock()
    link = RedisLink(NOWHERE, clock=clock)
    await asyncio.gather(*(refused(link) for _ in range(4)))
    clock.now += FIRST_PAUSE_S
    assert await refused(link) != "it failed a moment ago"


async def test_start_does_not_need_redis(caplog: pytest.LogCaptureFixture) -> None:
    link = RedisLink(NOWHERE)
    await link.start()
    assert not link.is_up
    assert "going on without it" in caplog.text
    await link.stop()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://", "expected redis://HOST"),
        ("h:6379", "expected redis://HOST"),
        ("http://h:1", "expected redis://HOST"),
        ("redis://[::1", "expected redis://HOST"),
        ("redis://h:99999", "expected redis://HOST"),
        ("unix://", "expected redis://HOST"),
        ("redis://h/name", "number of a database"),
        ("redis://h?nope=1", "nope"),
        ("redis://h?socket_timeout=soon", "socket_timeout"),
    ],
)
def test_url_that_means_nothing_is_refused_at_the_start(url: str, said: str) -> None:
    with pytest.raises(RedisURLError, match=said) as caught:
        RedisLink(url.replace("//h", "//:pass-word@h"))
    assert "pass-word" not in str(caught.value)
