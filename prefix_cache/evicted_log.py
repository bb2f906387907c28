"""What was evicted lately, when, and for what: enough to explain a miss.

A CacheObserver of bounded memory: the oldest runs are forgotten first. Pages may have come back
since, so who asks looks into the tree first.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from prefix_cache.observer import Cause
from prefix_cache.packed_tokens import TOKEN_BYTES

MAX_RUNS = 4096
MAX_BYTES = 4 * 1024 * 1024

# What a run takes besides the tokens of its first page, where nothing else is at its place.
_RUN_BYTES = 800

# As it is kept: made 10,000 times in a large eviction, which has 20 ms.
_Run = tuple[int, Cause, int]


@dataclass(frozen=True, slots=True)
class EvictedRun:
    """Pages that left the tree together at `at_ns`, wall clock."""

    at_ns: int
    cause: Cause
    num_pages: int


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
        self._max_page_bytes = 0
        self._runs: dict[bytes, dict[int, dict[bytes, _Run]]] = {}
        # In the order of their eviction; of a page that was evicted twice the first is stale.
        self._order: deque[tuple[bytes, int, bytes, _Run]] = deque()

    def __len__(self) -> int:
        return len(self._order)

    @property
    def num_bytes(self) -> int:
        """About how much memory the log takes, at most."""
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
        run = (self._clock_ns(), cause, num_pages)
        places = self._runs.get(namespace)
        if places is None:
            places = self._runs[namespace] = {}
        pages = places.get(parent_key)
        if pages is None:
            places[parent_key] = {first_page: run}
        else:
            pages[first_page] = run
        self._order.append((namespace, parent_key, first_page, run))
        self._num_bytes += _RUN_BYTES + len(first_page)
        if len(first_page) > self._max_page_bytes:
            self._max_page_bytes = len(first_page)
        while len(self._order) > self._max_runs or self._num_bytes > self._max_bytes:
            self._forget_oldest()

    def has(self, namespace: bytes) -> bool:
        """Whether anything of the namespace is in the log."""
        return namespace in self._runs

    def find(
        self, namespace: bytes, parent_key: int, next_tokens: bytes, *, num_known: int
    ) -> EvictedRun | None:
        """The run behind that place which would have helped a prompt that goes on with the packed
        `next_tokens`, a page of them or all there are: its first page has them all, or is itself
        their beginning, and more than the `num_known` that are found elsewhere."""
        pages = self._runs.get(namespace, {}).get(parent_key, {})
        run = pages.get(next_tokens)
        if run is None and len(next_tokens) < self._max_page_bytes:
            longer = (run for page, run in pages.items() if page.startswith(next_tokens))
            run = next(longer, None)
        end = len(next_tokens) - TOKEN_BYTES
        while run is None and pages and end > num_known * TOKEN_BYTES:
            run = pages.get(next_tokens[:end])
            end -= TOKEN_BYTES
        return EvictedRun(*run) if run is not None else None

    def _forget_oldest(self) -> None:
        namespace, parent_key, first_page, run = self._order.popleft()
        self._num_bytes -= _RUN_BYTES + len(first_page)
        places = self._runs[namespace]
        pages = places.get(parent_key, {})
        if pages.get(first_page) is not run:
            return
        del pages[first_page]
        if not pages:
            del places[parent_key]
            if not places:
                del self._runs[namespace]
