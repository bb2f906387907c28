"""Holds a tenant to its requests and tokens a minute: counts each request when it begins, holds the
tokens that it may use, and settles with those that it used, however it ends."""

import asyncio
import math
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from gateway.accounts import Account
from gateway.errors import Overloaded, RateLimited
from gateway.generation import (
    Admitted,
    Completed,
    GenerationEvent,
    PreparedGeneration,
    TextDelta,
)
from gateway.minute_counters import (
    NOTHING_ASKED,
    Asked,
    MemoryCounters,
    Settled,
    Standing,
    returned_share,
    seconds_until,
)
from gateway.rate_limit_headers import LIMIT_HEADERS, duration, limit_headers
from gateway.redis_counters import RedisCounters
from gateway.redis_link import RedisUnavailable
from gateway.request_context import RequestContext

# Held for each choice of a request that does not say how long its answer may be, and of a limit for
# all of them, so that a small limit lets several run. What they use beyond that is counted, and may
# overdraw the bucket.
UNDECLARED_TOKENS = 1024
UNDECLARED_SHARE = 4


class RateLimits:
    """The counters of all tenants: those in Redis where there are any and they answer, else this
    server's own. It is a service: stop() waits until what has ended is counted."""

    def __init__(
        self,
        shared: RedisCounters | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._own = MemoryCounters(clock=clock)
        self._shared = shared
        self._settling: set[asyncio.Task[None]] = set()
        self.clock = clock

    @property
    def is_shared(self) -> bool:
        """Whether Redis is asked first."""
        return self._shared is not None

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        await asyncio.gather(*self._settling)

    @asynccontextmanager
    async def admit(self, context: RequestContext) -> "AsyncIterator[Charge]":
        """Counts a request for the length of the block, at whose end it is settled.

        Raises: RateLimited.
        """
        charge = Charge(self, context)
        await charge.begin()
        try:
            yield charge
        except (RateLimited, Overloaded):
            charge.withdraw()
            raise
        finally:
            charge.settle()

    async def name_limits(self, context: RequestContext) -> None:
        """Sets the headers that say what is left, where no answer's own have."""
        limits = context.account.limits
        if limits.are_counted:
            headers = limit_headers(limits, (await self.take(context.account, NOTHING_ASKED))[0])
            context.response_headers.update(headers)

    async def take(self, account: Account, asked: Asked) -> tuple[Standing, bool]:
        """The standing after it, and whether it was counted in Redis."""
        if self._shared is not None:
            try:
                return await self._shared.take(account.counter, account.limits, asked), True
            except RedisUnavailable:
                pass
        return self._own.take(account.counter, account.limits, asked), False

    def settle(
        self, account: Account, settled: Settled, *, held_tokens: int, is_shared: bool
    ) -> None:
        """Where it was taken. It does not wait for Redis: the caller's client may be gone."""
        if not is_shared:
            self._own.settle(account.counter, account.limits, settled)
            return
        task = asyncio.create_task(self._settle_shared(account, settled, held_tokens))
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _settle_shared(self, account: Account, settled: Settled, held_tokens: int) -> None:
        assert self._shared is not None
        try:
            await self._shared.settle(
                account.counter, account.limits, settled, held_tokens=held_tokens
            )
        except RedisUnavailable:  # until it is back the own counters decide
            self._own.settle(account.counter, account.limits, settled)


class Charge:
    """What one request costs its tenant."""

    def __init__(self, rates: RateLimits, context: RequestContext) -> None:
        self._rates = rates
        self._context = context
        self._account = context.account
        self._limits = context.account.limits
        self._started = rates.clock()
        self._returned_requests = 0.0
        self._is_request_shared = False
        self._hold_id = ""
        self._is_hold_shared = False
        self._num_held = 0
        self._num_prompt_tokens = 0
        self._num_used = 0

    async def begin(self) -> None:
        """Counts the request. Raises: RateLimited."""
        limit = self._limits.requests_per_minute
        if limit is None:
            return
        standing, self._is_request_shared = await self._take(Asked(requests=1))
        if not standing.is_granted:
            raise _refusal("requests", limit, used=standing.requests, asked=1)

    async def hold(self, prepared: PreparedGeneration) -> None:
        """Holds the tokens that the request may use. Raises: RateLimited."""
        limit = self._limits.tokens_per_minute
        if limit is None:
            return
        self._num_prompt_tokens = prepared.num_prompt_tokens
        asked = tokens_asked(prepared, limit)
        if asked > limit:
            raise _too_large(asked, limit)
        # Known before the call: if this task is cancelled in it, the tokens may be held already.
        self._hold_id, self._num_held = secrets.token_hex(8), asked
        self._is_hold_shared = self._rates.is_shared
        standing, self._is_hold_shared = await self._take(
            Asked(tokens=asked, hold_id=self._hold_id)
        )
        if not standing.is_granted:
            raise _refusal("tokens", limit, used=standing.tokens, asked=asked)

    def event(self, event: GenerationEvent) -> None:
        """Follows what is used, in case that the request does not come to its end."""
        match event:
            case Admitted():
                self._num_used = max(self._num_used, self._num_prompt_tokens)
            case TextDelta():
                self._num_used += event.num_tokens
            case Completed():
                self._num_used = event.usage.prompt_tokens + event.usage.completion_tokens

    def withdraw(self) -> None:
        """The request was turned away: it shall cost nothing."""
        elapsed_s = self._rates.clock() - self._started
        self._returned_requests = returned_share(self._limits.requests_per_minute, elapsed_s)
        for header in LIMIT_HEADERS:  # they no longer hold
            self._context.response_headers.pop(header, None)

    def settle(self) -> None:
        """Counts what was used."""
        if self._returned_requests:
            settled = Settled(returned_requests=self._returned_requests)
            self._settle(settled, is_shared=self._is_request_shared)
        if self._hold_id:
            settled = Settled(hold_id=self._hold_id, used_tokens=self._num_used)
            self._settle(settled, is_shared=self._is_hold_shared)

    def _settle(self, settled: Settled, *, is_shared: bool) -> None:
        self._rates.settle(self._account, settled, held_tokens=self._num_held, is_shared=is_shared)

    async def _take(self, asked: Asked) -> tuple[Standing, bool]:
        standing, is_shared = await self._rates.take(self._account, asked)
        self._context.response_headers.update(limit_headers(self._limits, standing))
        return standing, is_shared


def tokens_asked(prepared: PreparedGeneration, limit: int) -> int:
    """The prompt and the longest answers. Where the request sets no bound an answer may fill the
    model's context, which few do: then a guess is held, which alone makes no request too large."""
    request, prompt = prepared.request, prepared.num_prompt_tokens
    answers = sum(prepared.max_tokens) * request.num_choices
    if request.max_tokens is None:
        guess = UNDECLARED_TOKENS * len(prepared.max_tokens) * request.num_choices
        answers = min(answers, guess, limit // UNDECLARED_SHARE, max(0, limit - prompt))
    return prompt + answers


def _refusal(kind: str, limit: int, *, used: float, asked: int) -> RateLimited:
    wait_s = seconds_until(used + asked - limit, limit)
    return RateLimited(
        f"Rate limit reached for this API key on {kind} per minute: limit {limit}, used "
        f"{math.ceil(used)}, requested {asked}. Please try again in {duration(wait_s)}.",
        kind="tokens" if kind == "tokens" else "requests",
        wait_s=wait_s,
    )


def _too_large(asked: int, limit: int) -> RateLimited:
    return RateLimited(
        f"Request too large for this API key on tokens per minute: limit {limit}, requested "
        f"{asked} (the prompt and the longest answers). It can never be served as it is: shorten "
        "the prompt, or lower max_tokens or n.",
        kind="tokens",
        wait_s=None,
    )
