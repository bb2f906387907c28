"""Puts pages that came from lower tiers into the tree, chunk by chunk as they come.

Owned by Promotion, in the engine's thread.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from prefix_cache import Lease, PrefixCache
from prefix_cache.tiers.tier import TierLabel
from runtime.page_io import PageBytes, PageIo
from runtime.request import RestoredTokens
from runtime.tier_fetch import Fetch


@dataclass(eq=False, slots=True)
class Restoration:
    """What of a fetch is in the tree: `runs`. Its next chunk begins at `next_page`."""

    fetch: Fetch
    next_page: int
    has_failed: bool = False
    runs: list[RestoredTokens] = field(default_factory=list)


class Restorer:
    """`on_restored` is told the identities of pages that have entered the tree from a tier;
    `give_back` gets the chunks' arrays when their bytes are no longer needed."""

    def __init__(
        self,
        cache: PrefixCache,
        *,
        page_io: Callable[[], PageIo | None],
        on_restored: Callable[[Collection[bytes]], None],
        give_back: Callable[[PageBytes], None],
        clock_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._cache = cache
        self._page_io = page_io
        self._on_restored = on_restored
        self._give_back = give_back
        self._clock_ns = clock_ns

    def restore(self, restoration: Restoration, *, budget_ns: int | None) -> int:
        """Takes what has come, until so long is over (None = all of it); returns how long it
        took."""
        start_ns = self._clock_ns()
        chunks, spent_ns = restoration.fetch.chunks, 0
        while chunks and (budget_ns is None or spent_ns < budget_ns):
            tier, pages = chunks.popleft()
            if not restoration.has_failed:
                self._take(restoration, tier, pages)
            self._give_back(pages)
            spent_ns = self._clock_ns() - start_ns
        return spent_ns

    def _take(self, restoration: Restoration, tier: TierLabel, pages: PageBytes) -> None:
        fetch = restoration.fetch
        start, end = restoration.next_page, restoration.next_page + len(pages)
        token_ids = fetch.token_ids[: end * self._cache.page_size]
        lease = self._cache.acquire(
            fetch.namespace, token_ids, max_tokens=len(token_ids), owner=fetch.owner
        )
        try:
            self._cache.release_tail(lease)
            first = len(lease.page_ids)
            # Those in front may have been evicted meanwhile: behind a gap pages are of no use.
            reached = self._add(restoration, lease, pages) if first >= start else first
        finally:
            self._cache.release(lease, None)
        if reached > first:
            page_size = self._cache.page_size
            restoration.runs.append(RestoredTokens(tier, first * page_size, reached * page_size))
        restoration.next_page, restoration.has_failed = end, reached < end

    def _add(self, restoration: Restoration, lease: Lease, pages: PageBytes) -> int:
        """Writes the chunk's pages behind the lease's to pages of the pool, as many as can be had,
        and publishes them; returns up to which page there are some."""
        fetch, page_io, first = restoration.fetch, self._page_io(), len(lease.page_ids)
        end = restoration.next_page + len(pages)
        num_new = min(end - first, self._cache.num_available())
        if num_new <= 0 or page_io is None:
            return first
        new = pages[first - restoration.next_page :][:num_new]
        page_io.write(self._cache.extend(lease, num_new), new)
        self._cache.publish(lease, fetch.token_ids[: (first + num_new) * self._cache.page_size])
        self._on_restored(fetch.identities)
        return first + num_new
