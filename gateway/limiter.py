"""How much work is accepted at once: requests, prompt tokens, and requests of one key.

A request counts from acceptance to its last byte. Only the event loop's thread touches it.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gateway.errors import Overloaded, RateLimited

MAX_RETRY_AFTER_S = 60
# Weight of the newest request in the running mean of how long requests take.
_SMOOTHING = 0.2


@dataclass(frozen=True, slots=True)
class Limits:
    """`max_requests` = running + waiting. `max_per_tenant` 0 = no limit. A request that is alone
    is accepted whatever its tokens, else a long prompt could never be served."""

    max_running: int
    max_queue: int
    max_prompt_tokens: int
    max_per_tenant: int = 0

    @property
    def max_requests(self) -> int:
        return self.max_running + self.max_queue


class Admission:
    """One accepted request; its prompt tokens are added when they are known."""

    def __init__(self, limiter: "Limiter") -> None:
        self._limiter = limiter
        self.num_prompt_tokens = 0

    def add_prompt_tokens(self, num_tokens: int) -> None:
        """Raises: Overloaded when the prompts of all accepted requests would be too long."""
        self._limiter.reserve(num_tokens)
        self.num_prompt_tokens += num_tokens


class Limiter:
    """Counts accepted requests and refuses the ones beyond the limits."""

    def __init__(self, limits: Limits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._num_by_tenant: Counter[str] = Counter()
        self._mean_duration_s = 0.0
        self.num_requests = 0
        self.num_prompt_tokens = 0

    @contextmanager
    def admit(self, tenant: str) -> Iterator[Admission]:
        """Accepts a request for the length of the block.

        Raises: RateLimited over the key's own limit, Overloaded over the server's.
        """
        self._check(tenant)
        admission = Admission(self)
        started = self._clock()
        self.num_requests += 1
        self._num_by_tenant[tenant] += 1
        try:
            yield admission
        finally:
            self._leave(tenant, admission)
            self._record(self._clock() - started)

    def reserve(self, num_tokens: int) -> None:
        """Counts prompt tokens; what an admission reserved is freed when it ends."""
        total = self.num_prompt_tokens + num_tokens
        if self.num_prompt_tokens and total > self._limits.max_prompt_tokens:
            raise Overloaded(
                f"the server has {self.num_prompt_tokens} prompt tokens in work and accepts "
                f"{self._limits.max_prompt_tokens}; try again later",
                retry_after_s=self.retry_after_s(),
            )
        self.num_prompt_tokens = total

    def retry_after_s(self) -> int:
        """When a place is likely to be free: the queue's length in requests' mean time."""
        rounds = self.num_requests / self._limits.max_running
        return min(MAX_RETRY_AFTER_S, max(1, math.ceil(self._mean_duration_s * rounds)))

    def _check(self, tenant: str) -> None:
        limit = self._limits.max_per_tenant
        if limit and self._num_by_tenant[tenant] >= limit:
            raise RateLimited(
                f"this API key has {limit} requests in work, which is its limit; try again later",
                retry_after_s=self.retry_after_s(),
            )
        if self.num_requests >= self._limits.max_requests:
            raise Overloaded(
                f"the server has {self.num_requests} requests in work, which is its limit; "
                "try again later",
                retry_after_s=self.retry_after_s(),
            )

    def _leave(self, tenant: str, admission: Admission) -> None:
        self.num_requests -= 1
        self.num_prompt_tokens -= admission.num_prompt_tokens
        self._num_by_tenant[tenant] -= 1
        if not self._num_by_tenant[tenant]:
            del self._num_by_tenant[tenant]

    def _record(self, duration_s: float) -> None:
        self._mean_duration_s += _SMOOTHING * (duration_s - self._mean_duration_s)
