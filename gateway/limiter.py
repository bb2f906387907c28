"""How much work is accepted at once: sequences, prompt tokens, and sequences of one key.

Each choice of each prompt is a sequence. A request counts from acceptance to its last byte. Only
the event loop's thread touches it.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gateway.accounts import Account
from gateway.errors import GatewayError, Overloaded, RateLimited

MAX_RETRY_AFTER_S = 60
# Weight of the newest request in the running mean of how long requests take.
_SMOOTHING = 0.2


@dataclass(frozen=True, slots=True)
class Limits:
    """Sequences, but for `max_prompt_tokens`. `max_per_tenant` is for tenants that have no limit of
    their own; 0 = none. Over the server's limits a request that is alone is accepted whatever its
    size, else it could never be served."""

    max_running: int
    max_queue: int
    max_prompt_tokens: int
    max_per_tenant: int = 0

    @property
    def max_sequences(self) -> int:
        return self.max_running + self.max_queue


class Admission:
    """One accepted request; its prompt tokens are added when they are known."""

    def __init__(self, limiter: "Limiter", num_sequences: int) -> None:
        self._limiter = limiter
        self.num_sequences = num_sequences
        self.num_prompt_tokens = 0

    def add_prompt_tokens(self, num_tokens: int) -> None:
        """Raises: Overloaded when the prompts of all accepted requests would be too long."""
        self._limiter.reserve(num_tokens)
        self.num_prompt_tokens += num_tokens


class Limiter:
    """Counts the sequences of accepted requests and refuses requests beyond the limits."""

    def __init__(self, limits: Limits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._num_by_tenant: Counter[str] = Counter()
        self._mean_duration_s = 0.0
        self.num_sequences = 0
        self.num_prompt_tokens = 0

    @contextmanager
    def admit(self, account: Account, num_sequences: int) -> Iterator[Admission]:
        """Accepts a request for the length of the block.

        Raises: RateLimited over the tenant's own limit, Overloaded over the server's.
        """
        self._check(account, num_sequences)
        tenant = account.tenant
        admission = Admission(self, num_sequences)
        started = self._clock()
        self.num_sequences += num_sequences
        self._num_by_tenant[tenant] += num_sequences
        is_refused = False
        try:
            yield admission
        except GatewayError as error:
            is_refused = error.is_refusal
            raise
        finally:
            self._leave(tenant, admission)
            if not is_refused:  # it says nothing about how long a place is taken
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
        rounds = self.num_sequences / self._limits.max_running
        return min(MAX_RETRY_AFTER_S, max(1, math.ceil(self._mean_duration_s * rounds)))

    def _check(self, account: Account, num_sequences: int) -> None:
        limit = account.limits.max_concurrent or self._limits.max_per_tenant
        num_before = self._num_by_tenant[account.tenant]
        if limit and num_sequences > limit:
            raise RateLimited(
                f"This request asks for {num_sequences} choices, and this API key is given {limit} "
                "at a time. It can never be served as it is: ask for fewer.",
                kind="concurrency",
                wait_s=None,
            )
        if limit and num_before + num_sequences > limit:
            wait_s = self.retry_after_s()
            raise RateLimited(
                f"Rate limit reached for this API key on choices at a time: limit {limit}, used "
                f"{num_before}, requested {num_sequences}. Please try again in {wait_s}s.",
                kind="concurrency",
                wait_s=wait_s,
            )
        limit, num_before = self._limits.max_sequences, self.num_sequences
        if num_before and num_before + num_sequences > limit:
            raise Overloaded(
                f"the server has {num_before} choices in work and accepts {limit}; try again later",
                retry_after_s=self.retry_after_s(),
            )

    def _leave(self, tenant: str, admission: Admission) -> None:
        self.num_sequences -= admission.num_sequences
        self.num_prompt_tokens -= admission.num_prompt_tokens
        self._num_by_tenant[tenant] -= admission.num_sequences
        if not self._num_by_tenant[tenant]:
            del self._num_by_tenant[tenant]

    def _record(self, duration_s: float) -> None:
        self._mean_duration_s += _SMOOTHING * (duration_s - self._mean_duration_s)
