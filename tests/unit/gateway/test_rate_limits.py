"""What a request may use, and how the headers write it."""

import asyncio
from typing import Any

import pytest

from gateway.accounts import Account, AccountLimits
from gateway.errors import Overloaded, RateLimited
from gateway.generation import (
    Admitted,
    Completed,
    GenerationEvent,
    GenerationRequest,
    PreparedGeneration,
    TextDelta,
    TextPrompt,
    Usage,
)
from gateway.minute_counters import NOTHING_ASKED, Asked, Settled, Standing
from gateway.rate_limit_headers import duration, limit_headers
from gateway.rate_limits import UNDECLARED_TOKENS, Charge, RateLimits, tokens_asked
from gateway.redis_counters import RedisCounters
from gateway.redis_link import RedisLink
from gateway.request_context import RequestContext
from runtime.messages import Sampling
from tests.valkey_server import ValkeyServer

LIMITS = AccountLimits(requests_per_minute=60, tokens_per_minute=600)
ACCOUNT = Account(tenant="hash", counter="team", limits=LIMITS)


def prepared(
    *, prompts: tuple[int, ...] = (10,), answers: tuple[int, ...] = (20,), **request: object
) -> PreparedGeneration:
    """`prompts` and `answers` are lengths in tokens."""
    sampling = Sampling(max_tokens=1, temperature=1.0)
    given: Any = {"max_tokens": answers[0], **request}
    return PreparedGeneration(
        GenerationRequest("r", (TextPrompt("x"),), sampling, **given),
        tuple(tuple(range(length)) for length in prompts),
        sampling,
        answers,
    )


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0s"),
        (-1, "0s"),
        (0.0001, "1ms"),
        (0.12, "120ms"),
        (0.9991, "1s"),
        (1, "1s"),
        (7.66, "7.66s"),
        (59.9999, "1m0s"),
        (61.5, "1m1.5s"),
        (360, "6m0s"),
        (3600, "1h0m0s"),
        (3661.25, "1h1m1.25s"),
    ],
)
def test_durations_are_written_as_in_openais_headers(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


def test_headers_are_those_of_the_limits_that_are_set() -> None:
    standing = Standing(True, requests=1.2, tokens=700.0)
    assert limit_headers(AccountLimits(), standing) == {}
    assert limit_headers(AccountLimits(requests_per_minute=60), standing) == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "58",
        "x-ratelimit-reset-requests": "1.2s",
    }
    # An overdrawn bucket has nothing left, not less.
    assert limit_headers(LIMITS, standing)["x-ratelimit-remaining-tokens"] == "0"


def test_prompts_and_their_longest_answers_are_asked_for() -> None:
    assert tokens_asked(prepared(), 600) == 30
    several = prepared(prompts=(10, 5), answers=(20, 25), num_choices=3)
    assert tokens_asked(several, 600) == 15 + 3 * 45
    assert tokens_asked(prepared(answers=(2000,)), 600) == 2010


def test_guess_is_asked_for_where_no_length_is_declared() -> None:
    open_ended = prepared(prompts=(10, 10), answers=(5000, 5000), max_tokens=None, num_choices=2)
    assert tokens_asked(open_ended, 100_000) == 20 + 4 * UNDECLARED_TOKENS
    assert tokens_asked(open_ended, 8000) == 20 + 2000
    assert tokens_asked(open_ended, 24) == 24
    assert tokens_asked(prepared(max_tokens=None), 600) == 30
    assert tokens_asked(prepared(prompts=(700,), max_tokens=None), 600) == 700


async def used_after(
    *events: GenerationEvent, error: type[BaseException] | None = None
) -> Standing:
    """What stays counted of a request with these events."""
    rates, context = RateLimits(clock=lambda: 0.0), RequestContext("r", account=ACCOUNT)

    async def run(charge: Charge) -> None:
        await charge.hold(prepared(answers=(100,)))
        held, _ = await rates.take(ACCOUNT, NOTHING_ASKED)
        assert held.tokens == 110
        for event in events:
            charge.event(event)
        if error is not None:
            raise error("over")

    try:
        async with rates.admit(context) as charge:
            await run(charge)
    except BaseException as caught:
        if error is None or not isinstance(caught, error):
            raise
    return (await rates.take(ACCOUNT, NOTHING_ASKED))[0]


DELTA = TextDelta(0, "x", num_tokens=3)


async def test_complete_request_costs_its_usage() -> None:
    standing = await used_after(Admitted(), DELTA, Completed(Usage(10, 7, 0, retried_tokens=50)))
    assert (standing.requests, standing.tokens) == (1, 17)


@pytest.mark.parametrize("error", [RuntimeError, asyncio.CancelledError])
async def test_request_that_breaks_off_costs_what_was_computed(
    error: type[BaseException],
) -> None:
    assert (await used_after(error=error)).tokens == 0
    assert (await used_after(Admitted(), error=error)).tokens == 10
    standing = await used_after(Admitted(), DELTA, DELTA, error=error)
    assert (standing.requests, standing.tokens) == (1, 16)


async def test_request_that_is_turned_away_costs_nothing() -> None:
    standing = await used_after(error=Overloaded)
    assert (standing.requests, standing.tokens) == (0, 0)


async def test_account_without_limits_is_not_counted() -> None:
    rates, context = RateLimits(), RequestContext("r", account=Account(tenant="t"))
    for _ in range(3):
        async with rates.admit(context) as charge:
            await charge.hold(prepared(answers=(10**9,)))
            charge.event(Completed(Usage(10, 10**9, 0)))
    assert context.response_headers == {}


async def test_requests_beyond_the_limit_are_told_when_to_come_back() -> None:
    rates, context = RateLimits(clock=lambda: 0.0), RequestContext("r", account=ACCOUNT)
    for _ in range(60):
        async with rates.admit(context):
            pass
    with pytest.raises(RateLimited) as caught:
        async with rates.admit(context):
            pass
    assert caught.value.headers() == {"retry-after": "1", "retry-after-ms": "1000"}
    assert "in 1s." in caught.value.message


async def test_end_waits_for_what_is_still_to_be_settled(valkey: ValkeyServer) -> None:
    link = RedisLink(valkey.url, timeout_s=5)
    rates = RateLimits(RedisCounters(link, lease_s=100))
    async with rates.admit(RequestContext("r", account=ACCOUNT)) as charge:
        await charge.hold(prepared(answers=(100,)))
        charge.event(Completed(Usage(10, 7, 0)))
    await rates.stop()
    standing, is_shared = await rates.take(ACCOUNT, NOTHING_ASKED)
    assert is_shared
    assert 16 < standing.tokens <= 17
    await link.close()


async def test_what_was_held_in_redis_is_counted_here_when_redis_is_gone(
    valkey: ValkeyServer,
) -> None:
    link = RedisLink(valkey.url, timeout_s=5)
    rates = RateLimits(RedisCounters(link, lease_s=100), clock=lambda: 0.0)
    async with rates.admit(RequestContext("r", account=ACCOUNT)) as charge:
        await charge.hold(prepared(answers=(100,)))
        charge.event(Completed(Usage(10, 7, 0)))
        valkey.stop()
    await rates.stop()
    standing, is_shared = await rates.take(ACCOUNT, NOTHING_ASKED)
    assert (standing.tokens, is_shared) == (17, False)
    await link.close()


class SlowCounters(RedisCounters):
    """Redis grants, yet its answer does not come."""

    def __init__(self) -> None:
        self.settled: list[str] = []
        self.is_asked = asyncio.Event()

    async def take(self, tenant: str, limits: AccountLimits, asked: Asked) -> Standing:
        assert (tenant, limits) == ("team", LIMITS)
        if asked.tokens:
            self.is_asked.set()
            await asyncio.Event().wait()
        return Standing(True, 0, 0)

    async def settle(
        self, tenant: str, limits: AccountLimits, settled: Settled, *, held_tokens: int
    ) -> None:
        assert (tenant, limits) == ("team", LIMITS)
        self.settled.append(f"{held_tokens}:{settled.hold_id}")


async def test_tokens_that_redis_may_have_held_for_a_request_that_left_are_given_back() -> None:
    counters = SlowCounters()
    rates, context = RateLimits(counters), RequestContext("r", account=ACCOUNT)

    async def run() -> None:
        async with rates.admit(context) as charge:
            await charge.hold(prepared(answers=(100,)))

    request = asyncio.create_task(run())
    await counters.is_asked.wait()
    request.cancel()
    await asyncio.gather(request, return_exceptions=True)
    await rates.stop()
    (settled,) = counters.settled
    assert settled.startswith("110:")
    assert len(settled) > len("110:")
