"""Whatever is asked, granted and settled: no window of time sees more than the limits allow."""

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.accounts import AccountLimits
from gateway.minute_counters import (
    NOTHING_ASKED,
    TOLERANCE,
    Asked,
    MemoryCounters,
    Settled,
    returned_share,
)
from gateway.redis_counters import RedisCounters
from gateway.redis_link import RedisLink
from tests.valkey_server import ValkeyServer

REQUESTS, TOKENS = 6, 60
LIMITS = AccountLimits(requests_per_minute=REQUESTS, tokens_per_minute=TOKENS)
# (seconds before it, tokens that it may use, share of them that it uses, seconds that it takes,
# whether it is turned away after it was counted)
STEPS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.0, 0.5, 1.0, 7.0, 30.0, 61.0]),
        st.integers(1, TOKENS),
        st.sampled_from([0.0, 0.1, 0.5, 1.0]),
        st.sampled_from([0.0, 0.01, 3.0, 9.0, 70.0]),
        st.booleans(),
    ),
    max_size=40,
)


@dataclass
class Run:
    """Requests as they come and end, in the order of time, and what was used when."""

    counters: MemoryCounters
    now: float = 0.0
    open: list[tuple[float, str, int, float]] = field(default_factory=list)
    tokens_used: list[tuple[float, float]] = field(default_factory=list)
    requests_used: list[tuple[float, float]] = field(default_factory=list)

    def until(self, end: float) -> None:
        """What ends until then is settled at its time."""
        for ends, hold_id, used, started in sorted(self.open):
            if ends > end:
                continue
            self.open.remove((ends, hold_id, used, started))
            self.now = ends
            returned = returned_share(REQUESTS, ends - started) if used < 0 else 0.0
            self.counters.settle("t", LIMITS, Settled(hold_id, max(0, used), returned))
            self.tokens_used.append((ends, max(0, used)))
            self.check()
        self.now = end

    def check(self) -> None:
        standing = self.counters.take("t", LIMITS, NOTHING_ASKED)
        assert 0 <= standing.requests <= REQUESTS + TOLERANCE
        assert 0 <= standing.tokens <= TOKENS + TOLERANCE


def assert_no_window_has_more(used: list[tuple[float, float]], limit: int) -> None:
    for start, _ in used:
        for end, _ in used:
            inside = sum(amount for at, amount in used if start <= at <= end)
            assert end < start or inside <= limit + limit / 60 * (end - start) + 1e-3


@settings(derandomize=True, deadline=None, max_examples=150)
@given(STEPS)
def test_no_window_has_more_than_a_full_bucket_and_what_drains_in_it(
    steps: list[tuple[float, int, float, float, bool]],
) -> None:
    run = Run(MemoryCounters(clock=lambda: run.now))
    for index, (pause, tokens, share, takes, is_turned_away) in enumerate(steps):
        run.until(run.now + pause)
        asked = Asked(requests=1, tokens=tokens, hold_id=str(index))
        if run.counters.take("t", LIMITS, asked).is_granted:
            used = -1 if is_turned_away else round(share * tokens)
            run.open.append((run.now + takes, str(index), used, run.now))
            run.requests_used.append((run.now, 0.0 if is_turned_away else 1.0))
        run.check()
    run.until(run.now + 1000)
    assert_no_window_has_more(run.tokens_used, TOKENS)
    assert_no_window_has_more(run.requests_used, REQUESTS)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(st.lists(st.integers(1, TOKENS), min_size=1, max_size=20))
def test_after_the_wait_that_is_told_the_same_request_is_granted(amounts: list[int]) -> None:
    now = 0.0
    counters = MemoryCounters(clock=lambda: now)
    for index, tokens in enumerate(amounts):
        asked = Asked(tokens=tokens, hold_id=str(index))
        standing = counters.take("t", LIMITS, asked)
        if not standing.is_granted:
            now += (standing.tokens + tokens - TOKENS) * 60 / TOKENS
            assert counters.take("t", LIMITS, asked).is_granted
        counters.settle("t", LIMITS, Settled(str(index), used_tokens=tokens))


# (seconds before it, requests, tokens to hold, which earlier hold is settled, what it used)
CALLS = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 1, 5, 30, 70]),
        st.integers(0, 2),
        st.integers(0, TOKENS),
        st.integers(0, 10),
        st.integers(0, TOKENS),
    ),
    min_size=5,
    max_size=25,
)


def test_redis_grants_what_memory_grants(valkey: ValkeyServer) -> None:
    @settings(derandomize=True, deadline=None, max_examples=20)
    @given(CALLS)
    def check(calls: list[tuple[int, int, int, int, int]]) -> None:
        asyncio.run(compare(valkey, calls))

    check()


async def grown_older(redis: Any, *, seconds: int) -> None:
    await redis.hincrbyfloat("radixgate:rate:{t}:buckets", "at", -seconds)


async def compare(valkey: ValkeyServer, calls: list[tuple[int, int, int, int, int]]) -> None:
    """Levels are whole numbers here, but for the milliseconds that Redis takes."""
    now = 0.0
    limits = AccountLimits(requests_per_minute=60, tokens_per_minute=60)
    link = RedisLink(valkey.url, timeout_s=5)
    await link.call(lambda redis: redis.flushdb())
    shared, own = RedisCounters(link, lease_s=1000), MemoryCounters(clock=lambda: now)
    held: list[tuple[str, int]] = []
    for index, (pause, requests, tokens, settled_index, used) in enumerate(calls):
        now += pause
        await link.call(partial(grown_older, seconds=pause))
        asked = Asked(requests, tokens, f"h{index}")
        expected = own.take("t", limits, asked)
        found = await shared.take("t", limits, asked)
        assert found.is_granted == expected.is_granted
        assert abs(found.requests - expected.requests) < 0.9
        assert abs(found.tokens - expected.tokens) < 0.9
        if found.is_granted and tokens:
            held.append((asked.hold_id, tokens))
        if settled_index < len(held):
            hold_id, amount = held.pop(settled_index)
            settled = Settled(hold_id, used, returned_requests=1.0)
            own.settle("t", limits, settled)
            await shared.settle("t", limits, settled, held_tokens=amount)
    await link.close()
