"""Describes the prefix cache: sizes, hit rates, the tree. Reads it, between two steps."""

import heapq

from prefix_cache import PrefixCache
from prefix_cache.hit_rates import HitRates
from prefix_cache.owners import OwnerPages
from prefix_cache.snapshot import Edge, snapshot
from runtime.cache_messages import (
    CachedEdge,
    CacheDescription,
    DescribeCache,
    HitWindow,
    HotPrefix,
    OwnerUse,
    TierUse,
)

# Of more owners those with the most pages are told.
MAX_OWNERS = 100
# A question may ask for no more, whatever it says.
MAX_EDGES = 1000
MAX_HOTTEST = 100


class CacheDescriber:
    """What is told of all owners has no token ids."""

    def __init__(self, cache: PrefixCache, rates: HitRates, *, page_bytes: int) -> None:
        self._cache = cache
        self._rates = rates
        self._page_bytes = page_bytes

    def describe(self, query: DescribeCache, tiers: tuple[TierUse, ...]) -> CacheDescription:
        pages = self._cache.counts()
        owners = self._owners(query.owner)
        seen = snapshot(
            (root for one in owners for root in reversed(one.roots.values())),
            max_edges=min(query.max_nodes, MAX_EDGES),
            num_hottest=min(query.num_hottest, MAX_HOTTEST),
        )
        has_ids = query.owner is not None
        return CacheDescription(
            request_id=query.request_id,
            page_size=self._cache.page_size,
            page_bytes=self._page_bytes,
            pages_free=pages.free,
            pages_cached=pages.cached,
            pages_locked=pages.locked,
            pages_held=pages.held,
            pages_total=pages.total,
            num_evicted_pages=self._cache.num_evicted_pages,
            owners=[self._owner_use(one) for one in owners],
            hottest=[_hot_prefix(edge, has_ids=has_ids) for edge in seen.hottest],
            edges=[_cached_edge(edge, has_ids=has_ids) for edge in seen.edges],
            num_left_out=seen.num_left_out,
            tiers=list(tiers),
            windows=self._windows(query.owner),
        )

    def _owners(self, owner: str | None) -> list[OwnerPages]:
        known = self._cache.tree.owners
        if owner is not None:
            return [known.find(owner) or OwnerPages(owner)]
        return heapq.nlargest(MAX_OWNERS, known, key=lambda one: one.num_pages)

    def _owner_use(self, pages: OwnerPages) -> OwnerUse:
        return OwnerUse(
            owner=pages.owner,
            num_pages=pages.num_pages,
            num_pinned_pages=pages.num_pinned,
            quota_pages=pages.max_pages,
            windows=self._windows(pages.owner),
        )

    def _windows(self, owner: str | None) -> tuple[HitWindow, ...]:
        return tuple(
            HitWindow(window_s, count.num_requests, count.prompt_tokens, count.cached_tokens)
            for window_s, count in self._rates.windows(owner)
        )


def _cached_edge(edge: Edge, *, has_ids: bool) -> CachedEdge:
    node = edge.node
    return CachedEdge(
        id=edge.id,
        parent=edge.parent.id if edge.parent is not None else None,
        owner=node.root.owner,
        start=edge.start,
        num_tokens=edge.num_tokens,
        num_pages=node.num_pages,
        num_hits=node.num_hits,
        last_used_ns=node.used_ns,
        pinned_until_ns=node.pinned_until_ns,
        is_locked=node.num_locks > 0,
        token_ids=edge.first_ids() if has_ids else [],
    )


def _hot_prefix(edge: Edge, *, has_ids: bool) -> HotPrefix:
    first_ids, last_ids = edge.prefix_ends() if has_ids else ([], [])
    return HotPrefix(
        num_tokens=edge.end,
        num_hits=edge.node.num_hits,
        last_used_ns=edge.node.used_ns,
        first_ids=first_ids,
        last_ids=last_ids,
    )
