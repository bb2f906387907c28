"""How much of the prompts was found in the cache, over windows, for each owner and for all.

Written where a request is admitted, read where the cache is described. Bounded: of the owners
those that asked last are known; what others asked counts in the sum over all alone.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

MAX_OWNERS = 1000

# The last window is counted in minutes, the others in buckets of five seconds.
WINDOWS_S = (60, 300, 3600)
_NS = 1_000_000_000
_FINE_NS = 5 * _NS
_COARSE_NS = 60 * _NS


@dataclass(eq=False, slots=True)
class HitCount:
    """Requests, the tokens of their prompts, and those of them found in the cache."""

    num_requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0

    def add(self, other: "HitCount") -> None:
        self.num_requests += other.num_requests
        self.prompt_tokens += other.prompt_tokens
        self.cached_tokens += other.cached_tokens


class HitRates:
    """Windows of WINDOWS_S seconds, each up to one bucket longer than its name, and one since the
    start. An owner that was forgotten and comes back begins anew."""

    def __init__(
        self, *, clock_ns: Callable[[], int] = time.monotonic_ns, max_owners: int = MAX_OWNERS
    ) -> None:
        self._clock_ns = clock_ns
        self._max_owners = max_owners
        self._all = _History()
        self._owners: OrderedDict[str, _History] = OrderedDict()

    def note(self, owner: str, *, num_prompt_tokens: int, num_cached_tokens: int) -> None:
        """A request was admitted, with so much of its prompt found."""
        count = HitCount(1, num_prompt_tokens, num_cached_tokens)
        now_ns = self._clock_ns()
        self._all.add(count, now_ns)
        history = self._owners.get(owner)
        if history is None:
            history = self._owners[owner] = _History()
            if len(self._owners) > self._max_owners:
                self._owners.popitem(last=False)
        self._owners.move_to_end(owner)
        history.add(count, now_ns)

    def windows(self, owner: str | None) -> list[tuple[int | None, HitCount]]:
        """Each window's seconds (None = since the start) and its counts; of all owners for None."""
        history = self._all if owner is None else self._owners.get(owner) or _History()
        return history.windows(self._clock_ns())


class _History:
    def __init__(self) -> None:
        self._total = HitCount()
        self._fine = _Buckets(_FINE_NS, 300 * _NS)
        self._coarse = _Buckets(_COARSE_NS, 3600 * _NS)

    def add(self, count: HitCount, now_ns: int) -> None:
        self._total.add(count)
        self._fine.add(count, now_ns)
        self._coarse.add(count, now_ns)

    def windows(self, now_ns: int) -> list[tuple[int | None, HitCount]]:
        minute, five_minutes, hour = WINDOWS_S
        return [
            (minute, self._fine.sum(now_ns, minute * _NS)),
            (five_minutes, self._fine.sum(now_ns, five_minutes * _NS)),
            (hour, self._coarse.sum(now_ns, hour * _NS)),
            (None, self._total),
        ]


class _Buckets:
    """Counts by time. Only buckets in which something happened exist, and not for longer than the
    span; a clock that is set back costs some counts, and nothing else."""

    def __init__(self, width_ns: int, span_ns: int) -> None:
        self._width_ns = width_ns
        self._num_buckets = span_ns // width_ns
        self._counts: dict[int, HitCount] = {}

    def add(self, count: HitCount, now_ns: int) -> None:
        index = now_ns // self._width_ns
        bucket = self._counts.get(index)
        if bucket is None:
            bucket = self._counts[index] = HitCount()
            if len(self._counts) > self._num_buckets + 1:
                del self._counts[max(self._counts, key=lambda other: abs(other - index))]
        bucket.add(count)

    def sum(self, now_ns: int, span_ns: int) -> HitCount:
        now = now_ns // self._width_ns
        first = now - span_ns // self._width_ns
        total = HitCount()
        for index, count in self._counts.items():
            if first <= index <= now:
                total.add(count)
        return total
