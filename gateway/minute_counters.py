"""How much of its requests and tokens a minute a tenant has used, in this process.

Each is a bucket that holds a minute's worth and drains evenly, so that a tenant can use a minute's
worth at once, and its limit a minute from then on. Requests count when they are taken. Tokens are
held while a request runs, at the most that it may use, and count when it ends with what it used:
what is used and what is held never exceed the limit together when something is granted.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.accounts import AccountLimits

MINUTE_S = 60.0
# Levels are sums of quotients: what is a full bucket on paper may be a little more.
TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request wants to use; all of it is granted or nothing. Tokens are held under
    `hold_id` until they are settled. Nothing at all = only a look."""

    requests: int = 0
    tokens: int = 0
    hold_id: str = ""


@dataclass(frozen=True, slots=True)
class Settled:
    """What came of it: `used_tokens` count instead of those held under `hold_id`, and
    `returned_requests` of the requests were not used."""

    hold_id: str = ""
    used_tokens: int = 0
    returned_requests: float = 0.0


NOTHING_ASKED = Asked()
NOTHING_SETTLED = Settled()


@dataclass(frozen=True, slots=True)
class Standing:
    """What is in a tenant's buckets now, held tokens among them, and whether what was asked for
    was granted."""

    is_granted: bool
    requests: float
    tokens: float


@dataclass(eq=False, slots=True)
class _Buckets:
    at: float
    requests: float = 0.0
    tokens: float = 0.0
    held: dict[str, int] = field(default_factory=dict)

    def drain(self, limits: AccountLimits, now: float) -> None:
        elapsed = max(0.0, now - self.at)
        self.requests = _drained(self.requests, limits.requests_per_minute, elapsed)
        self.tokens = _drained(self.tokens, limits.tokens_per_minute, elapsed)
        self.at = now

    def standing(self, is_granted: bool) -> Standing:
        return Standing(is_granted, self.requests, self.tokens + sum(self.held.values()))


class MemoryCounters:
    """One per server, used by the event loop only. It has as many buckets as key files ever named
    tenants."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, _Buckets] = {}

    def take(self, tenant: str, limits: AccountLimits, asked: Asked) -> Standing:
        """Grants what was asked for, or changes nothing."""
        buckets = self._drained(tenant, limits)
        before = buckets.standing(is_granted=True)
        is_granted = fits(before.requests, asked.requests, limits.requests_per_minute) and fits(
            before.tokens, asked.tokens, limits.tokens_per_minute
        )
        if is_granted:
            buckets.requests += asked.requests
            if asked.tokens:
                buckets.held[asked.hold_id] = asked.tokens
        return buckets.standing(is_granted)

    def settle(self, tenant: str, limits: AccountLimits, settled: Settled) -> None:
        """Counts what was used; a hold that is not there counts as well."""
        buckets = self._drained(tenant, limits)
        buckets.held.pop(settled.hold_id, None)
        buckets.tokens += settled.used_tokens
        buckets.requests = max(0.0, buckets.requests - settled.returned_requests)

    def _drained(self, tenant: str, limits: AccountLimits) -> _Buckets:
        now = self._clock()
        buckets = self._buckets.setdefault(tenant, _Buckets(now))
        buckets.drain(limits, now)
        return buckets


def fits(level: float, amount: int, limit: int | None) -> bool:
    """Whether there is room for an amount; for nothing there always is."""
    return limit is None or not amount or level + amount <= limit + TOLERANCE


def seconds_until(excess: float, limit: int) -> float:
    """How long a bucket takes to drain by so much."""
    return max(0.0, excess) * MINUTE_S / limit


def returned_share(limit: int | None, elapsed_s: float) -> float:
    """How much of a request that was not used may be given back after so long: what has not
    drained by then. More would let through what the bucket no longer has room for."""
    return max(0.0, 1.0 - (limit or 0) / MINUTE_S * elapsed_s)


def _drained(level: float, limit: int | None, elapsed: float) -> float:
    return 0.0 if limit is None else max(0.0, level - limit / MINUTE_S * elapsed)
