"""What was evicted lately, when, and for what: enough to explain a miss.

A CacheObserver of bounded memory: the oldest runs are forgotten first. Pages may have come back
since, so who asks looks into the tree first.
"""

import time
from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass

from prefix_cache.observer import Cause
from prefix_cache.packed_tokens import TOKEN_BYTES, common_bytes

MAX_RUNS = 4096
MAX_BYTES = 4 * 1024 * 1024

# What a run takes besides the tokens of its first page: entries of two dicts, a tuple, a record.
_RUN_BYTES = 400

_PlaceKey = tuple[bytes, int]


@dataclass(frozen=True, slots=True)
class EvictedRun:
    """Pages that left the tree together at `at_ns`, wall clock."""

    at_ns: int
    cause: Cause
    num_pages: int


@dataclass(frozen=True, slots=True)
class EvictedMatch:
    """A run whose first page begins with `num_shared` of the tokens that were looked for."""

    run: EvictedRun
    first_page: bytes
    num_shared: int


class EvictedLog:
    """Runs by where they hung in the tree: namespace, key of all tokens before, first page."""

    def __init__(
        self,
        *,
        max_runs: int = MAX_RUNS,
        max_bytes: int = MAX_BYTES,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._max_runs = max_runs
        self._max_bytes = max_bytes
        self._clock_ns = clock_ns
        self._num_bytes = 0
        # In the order of their eviction.
        self._runs: dict[tuple[_PlaceKey, bytes], EvictedRun] = {}
        self._num_runs_of: dict[bytes, int] = {}
        # The first pages at one place, sorted: those that begin alike stand together.
        self._pages: dict[_PlaceKey, list[bytes]] = {}

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def num_bytes(self) -> int:
        """About how much memory the log takes."""
        return self._num_bytes

    def evicted(
        self,
        namespace: bytes,
        parent_key: int,
        *,
        first_page: bytes,
        num_pages: int,
        cause: Cause,
        for_owner: str,  # noqa: ARG002 - part of the protocol; owners are not told of each other
    ) -> None:
        place = (namespace, parent_key)
        self._forget(place, first_page)
        self._runs[place, first_page] = EvictedRun(self._clock_ns(), cause, num_pages)
        insort(self._pages.setdefault(place, []), first_page)
        self._num_bytes += _RUN_BYTES + len(first_page)
        self._num_runs_of[namespace] = self._num_runs_of.get(namespace, 0) + 1
        while len(self._runs) > self._max_runs or self._num_bytes > self._max_bytes:
            self._forget(*next(iter(self._runs)))

    def has(self, namespace: bytes) -> bool:
        """Whether anything of the namespace is in the log."""
        return namespace in self._num_runs_of

    def find(self, namespace: bytes, parent_key: int, next_tokens: bytes) -> EvictedMatch | None:
        """Of the runs behind that place the one whose first page shares most with the packed
        `next_tokens`; None where none shares any."""
        place = (namespace, parent_key)
        pages = self._pages.get(place, [])
        index = bisect_left(pages, next_tokens)
        # Whatever shares most stands next to where the tokens themselves would; a page that
        # begins with all of them stands behind.
        best = max(
            pages[max(0, index - 1) : index + 1],
            key=lambda page: common_bytes(page, next_tokens),
            default=b"",
        )
        num_shared = common_bytes(best, next_tokens) // TOKEN_BYTES
        return EvictedMatch(self._runs[place, best], best, num_shared) if num_shared else None

    def _forget(self, place: _PlaceKey, first_page: bytes) -> None:
        if self._runs.pop((place, first_page), None) is None:
            return
        pages = self._pages[place]
        del pages[bisect_left(pages, first_page)]
        if not pages:
            del self._pages[place]
        self._num_bytes -= _RUN_BYTES + len(first_page)
        namespace, _ = place
        self._num_runs_of[namespace] -= 1
        if not self._num_runs_of[namespace]:
            del self._num_runs_of[namespace]
