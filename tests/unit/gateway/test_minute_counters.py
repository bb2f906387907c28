"""The counters of a minute, in memory and in Redis: one contract."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

from gateway.accounts import AccountLimits
from gateway.minute_counters import (
    NOTHING_ASKED,
    Asked,
    MemoryCounters,
    Settled,
    Standing,
    returned_share,
)
from gateway.redis_counters import RedisCounters
from gateway.redis_link import RedisLink, RedisUnavailable
from tests.valkey_server import ValkeyServer

LIMITS = AccountLimits(requests_per_minute=6, tokens_per_minute=600)
LEASE_S = 100.0


class InMemory:
    """The contract's view of MemoryCounters."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.counters = MemoryCounters(clock=lambda: self.now)

    async def take(self, asked: Asked, *, limits: AccountLimits = LIMITS) -> Standing:
        return self.counters.take("t", limits, asked)

    async def settle(self, settled: Settled, held: int = 0) -> None:
        assert held >= 0
        self.counters.settle("t", LIMITS, settled)

    async def wait(self, seconds: float) -> None:
        self.now += seconds

    async def close(self) -> None:
        pass


class InRedis:
    """The contract's view of RedisCounters; what is stored grows older instead of time passing."""

    def __init__(self, valkey: ValkeyServer) -> None:
        self.link = RedisLink(valkey.url, timeout_s=5)
        self.counters = RedisCounters(self.link, lease_s=LEASE_S)

    async def take(self, asked: Asked, *, limits: AccountLimits = LIMITS) -> Standing:
        return await self.counters.take("t", limits, asked)

    async def settle(self, settled: Settled, held: int = 0) -> None:
        await self.counters.settle("t", LIMITS, settled, held_tokens=held)

    async def wait(self, seconds: float) -> None:
        await self.link.call(lambda redis: grown_older(redis, seconds))

    async def close(self) -> None:
        await self.link.close()


async def grown_older(redis: Any, seconds: float) -> None:
    await redis.hincrbyfloat("radixgate:rate:{t}:buckets", "at", -seconds)
    holds = "radixgate:rate:{t}:holds"
    for member in await redis.zrange(holds, 0, -1):
        await redis.zincrby(holds, -seconds, member)


async def lives_of_all(redis: Any) -> dict[str, int]:
    """Every key with the seconds that it has left; -1 = for ever."""
    return {key.decode(): await redis.ttl(key) for key in await redis.keys("*")}


Counters = InMemory | InRedis


@pytest.fixture(params=["memory", "redis"])
async def counters(request: pytest.FixtureRequest) -> AsyncIterator[Counters]:
    if request.param == "memory":
        counters: Counters = InMemory()
    else:
        counters = InRedis(request.getfixturevalue("valkey"))
    yield counters
    await counters.close()


def near(value: float) -> Callable[[float], bool]:
    """Some time passes while Redis is asked."""
    return lambda level: value - 1 <= level <= value + 1e-3


async def test_a_minutes_worth_may_be_used_at_once_and_no_more(counters: Counters) -> None:
    for num in range(1, 7):
        standing = await counters.take(Asked(requests=1))
        assert standing.is_granted
        assert near(num)(standing.requests)
    refused = await counters.take(Asked(requests=1))
    assert not refused.is_granted
    assert near(6)(refused.requests)


async def test_buckets_drain_evenly_and_are_empty_after_a_minute(counters: Counters) -> None:
    for _ in range(6):
        await counters.take(Asked(requests=1))
    await counters.wait(10)
    assert (await counters.take(Asked(requests=1))).is_granted
    assert not (await counters.take(Asked(requests=1))).is_granted
    await counters.wait(600)
    assert (await counters.take(NOTHING_ASKED)).requests == 0


async def test_tokens_are_held_until_they_are_settled_with_what_was_used(
    counters: Counters,
) -> None:
    assert (await counters.take(Asked(tokens=500, hold_id="a"))).is_granted
    assert not (await counters.take(Asked(tokens=101, hold_id="b"))).is_granted
    await counters.wait(30)  # what is held does not drain: it may all be used yet
    assert (await counters.take(NOTHING_ASKED)).tokens == 500
    await counters.settle(Settled("a", used_tokens=40), held=500)
    assert near(40)((await counters.take(NOTHING_ASKED)).tokens)
    await counters.wait(2)
    assert near(20)((await counters.take(NOTHING_ASKED)).tokens)
    assert (await counters.take(Asked(tokens=580, hold_id="c"))).is_granted


async def test_refused_request_leaves_nothing_behind(counters: Counters) -> None:
    await counters.take(Asked(tokens=600, hold_id="a"))
    refused = await counters.take(Asked(requests=1, tokens=1, hold_id="b"))
    assert not refused.is_granted
    await counters.settle(Settled("a"), held=600)
    standing = await counters.take(NOTHING_ASKED)
    assert (standing.requests, standing.tokens) == (0, 0)


async def test_more_than_was_held_overdraws_the_bucket_until_it_drained(
    counters: Counters,
) -> None:
    await counters.take(Asked(tokens=100, hold_id="a"))
    await counters.settle(Settled("a", used_tokens=900), held=100)
    assert near(900)((await counters.take(NOTHING_ASKED)).tokens)
    await counters.wait(29)
    assert not (await counters.take(Asked(tokens=1, hold_id="b"))).is_granted
    await counters.wait(2)
    assert (await counters.take(Asked(tokens=1, hold_id="b"))).is_granted


async def test_returned_requests_never_make_a_bucket_negative(counters: Counters) -> None:
    await counters.take(Asked(requests=1))
    await counters.settle(Settled(returned_requests=1.0))
    await counters.settle(Settled(returned_requests=1.0))
    assert (await counters.take(NOTHING_ASKED)).requests == 0
    for _ in range(6):
        assert (await counters.take(Asked(requests=1))).is_granted
    assert not (await counters.take(Asked(requests=1))).is_granted


async def test_settling_twice_counts_the_hold_once(counters: Counters) -> None:
    await counters.take(Asked(tokens=100, hold_id="a"))
    await counters.take(Asked(tokens=50, hold_id="b"))
    await counters.settle(Settled("a"), held=100)
    await counters.settle(Settled("a"), held=100)
    assert (await counters.take(NOTHING_ASKED)).tokens == 50


async def test_changed_limit_holds_from_the_next_request_on(counters: Counters) -> None:
    for _ in range(6):
        await counters.take(Asked(requests=1))
    higher = replace(LIMITS, requests_per_minute=8)
    lower = replace(LIMITS, requests_per_minute=3)
    assert (await counters.take(Asked(requests=1), limits=higher)).is_granted
    assert not (await counters.take(Asked(requests=1), limits=lower)).is_granted
    unlimited = AccountLimits()
    for _ in range(20):
        assert (await counters.take(Asked(requests=1), limits=unlimited)).is_granted


async def test_tenants_have_buckets_of_their_own() -> None:
    counters = MemoryCounters(clock=lambda: 0.0)
    for _ in range(7):
        counters.take("a", LIMITS, Asked(requests=1))
    assert counters.take("a", LIMITS, NOTHING_ASKED).requests == 6
    assert counters.take("b", LIMITS, NOTHING_ASKED).requests == 0


async def test_clock_that_goes_back_drains_nothing() -> None:
    memory = InMemory()
    await memory.take(Asked(requests=1))
    await memory.wait(-100)
    assert (await memory.take(NOTHING_ASKED)).requests == 1
    await memory.wait(10)
    assert (await memory.take(NOTHING_ASKED)).requests == 0


async def test_server_that_died_holds_its_tokens_no_longer_than_their_lease(
    valkey: ValkeyServer,
) -> None:
    shared = InRedis(valkey)
    await shared.take(Asked(tokens=600, hold_id="dead"))
    await shared.wait(LEASE_S - 1)
    assert not (await shared.take(Asked(tokens=1, hold_id="b"))).is_granted
    await shared.wait(1)
    assert (await shared.take(Asked(tokens=600, hold_id="b"))).is_granted
    await shared.close()


async def test_nothing_stays_in_redis_for_ever(valkey: ValkeyServer) -> None:
    shared = InRedis(valkey)
    await shared.take(Asked(requests=6, tokens=600, hold_id="a"))
    lives = await shared.link.call(lives_of_all)
    assert sorted(lives) == ["radixgate:rate:{t}:buckets", "radixgate:rate:{t}:holds"]
    assert all(60 <= life <= LEASE_S + 60 for life in lives.values())
    await shared.close()


async def test_redis_that_is_gone_is_said(valkey: ValkeyServer) -> None:
    shared = InRedis(valkey)
    valkey.stop()
    with pytest.raises(RedisUnavailable):
        await shared.take(Asked(requests=1))
    await shared.close()


def test_what_has_drained_by_itself_is_not_given_back() -> None:
    assert returned_share(6, 0.0) == 1.0
    assert returned_share(6, 5.0) == 0.5
    assert returned_share(6, 11.0) == 0.0
    assert returned_share(None, 11.0) == 1.0


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e308", "-5", "x", ""])
@pytest.mark.parametrize("field", ["r", "t", "at"])
async def test_levels_that_no_server_wrote_into_redis_count_as_nothing(
    valkey: ValkeyServer, field: str, value: str
) -> None:
    counters = InRedis(valkey)
    key = "radixgate:rate:{t}:buckets"
    await counters.link.call(lambda redis: redis.hset(key, field, value))
    standing = await counters.take(Asked(requests=1, tokens=5, hold_id="a"))
    assert standing == Standing(is_granted=True, requests=1, tokens=5)
    await counters.close()


@pytest.mark.parametrize("part", ["buckets", "holds"])
async def test_keys_that_no_server_wrote_into_redis_are_replaced(
    valkey: ValkeyServer, part: str
) -> None:
    counters = InRedis(valkey)
    await counters.link.call(lambda redis: redis.set(f"radixgate:rate:{{t}}:{part}", "foreign"))
    await counters.take(Asked(requests=1, tokens=5, hold_id="a"))
    standing = await counters.take(NOTHING_ASKED)
    assert standing.tokens == 5
    assert 0.9 < standing.requests <= 1
    await counters.close()


async def test_a_hold_that_no_server_wrote_into_redis_holds_nothing(valkey: ValkeyServer) -> None:
    counters = InRedis(valkey)
    holds = "radixgate:rate:{t}:holds"
    await counters.link.call(lambda redis: redis.zadd(holds, {"foreign": 9e12}))
    assert (await counters.take(Asked(tokens=5, hold_id="a"))).tokens == 5
    await counters.close()
