"""Why no more of a prompt is cached than is. Reads the tree and changes nothing in it.

The work has a bound, and depends on what other owners have only where they may be looked at.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

from prefix_cache.cache import PrefixCache
from prefix_cache.evicted_log import EvictedLog, EvictedRun
from prefix_cache.lease import Lease
from prefix_cache.matching import Match
from prefix_cache.node import Node
from prefix_cache.packed_tokens import TOKEN_BYTES, pack, unpack
from prefix_cache.page_keys import page_key, root_key

# What a request is told; an explanation looks at other namespaces, too.
OwnMissReason = Literal["grows", "differs", "never_seen", "evicted"]
MissReason = OwnMissReason | Literal["other_salt", "other_tenant"]

# How far the nearest cached sequence is told.
MAX_CACHED_IDS = 16
# Of siblings that all differ at once, the one used last is told, of so many.
MAX_SIBLINGS = 64
# Namespaces that are looked at, and those of them that begin like the prompt and are matched to
# the end: a match of 4,000 tokens takes about 0.3 ms.
MAX_NAMESPACES = 256
MAX_MATCHED_NAMESPACES = 8


@dataclass(frozen=True, slots=True)
class Explanation:
    """`reason` None = all that can match does. `cached_ids` are how the nearest cached sequence
    goes on behind the matched tokens, where any are matched."""

    matched_tokens: int
    reason: MissReason | None = None
    cached_ids: list[int] = field(default_factory=list)
    evicted: EvictedRun | None = None


class CacheExplainer:
    """Explains prompts to their owners. Belongs to the cache's thread."""

    def __init__(self, cache: PrefixCache, evicted: EvictedLog) -> None:
        self._cache = cache
        self._evicted = evicted

    def explain(
        self, namespace: bytes, token_ids: Sequence[int], *, owner: str, sees_all: bool = False
    ) -> Explanation:
        """What a request with this prompt would get now. Its last token is never matched, as the
        logits behind it are wanted. `sees_all`: other owners' namespaces may be the reason."""
        limit = max(0, len(token_ids) - 1)
        match = self._cache.tree.match(namespace, token_ids, limit)
        num_matched = self._num_matched(match, token_ids)
        if num_matched == limit:
            return Explanation(num_matched)
        cached_ids = self._continuation(match) if num_matched else []
        run = self._evicted_run(
            namespace, token_ids[:limit], match.num_pages, num_tail=match.num_tail_tokens
        )
        reason: MissReason
        if run is not None:
            reason = "evicted"
        elif self._is_matched_by(self._namespaces_of(owner), token_ids, num_matched):
            reason = "other_salt"
        elif sees_all and self._is_matched_by(self._all_namespaces(), token_ids, num_matched):
            reason = "other_tenant"
        else:
            reason = _plain_reason(num_matched, goes_on=bool(cached_ids))
        return Explanation(num_matched, reason, cached_ids, run)

    def reason_of(self, lease: Lease, token_ids: Sequence[int]) -> OwnMissReason | None:
        """The reason in short, for a lease that was just acquired for these tokens and for whose
        tail nothing was done yet. No other namespace is looked at."""
        limit = len(token_ids) - 1
        if lease.namespace is None or lease.num_cached_tokens >= limit:
            return None
        num_pages = lease.num_shared_tokens // self._cache.page_size
        run = self._evicted_run(
            lease.namespace, token_ids[:limit], num_pages, num_tail=lease.num_tail_tokens
        )
        if run is not None:
            return "evicted"
        if lease.tail_node is not None:
            goes_on = lease.tail_node.num_tokens > lease.num_tail_tokens
        else:
            goes_on = lease.node is not None and bool(lease.node.children)
        return _plain_reason(lease.num_cached_tokens, goes_on=goes_on)

    def _num_matched(self, match: Match, token_ids: Sequence[int]) -> int:
        """As PrefixCache.acquire counts: a page is copied only where the pool has one to spare."""
        page_size = self._cache.page_size
        has_room = len(token_ids) // page_size + 1 < self._cache.num_pages
        return match.num_pages * page_size + (match.num_tail_tokens if has_room else 0)

    def _continuation(self, match: Match) -> list[int]:
        """The tokens behind the match of the sequence that shares most; none where it ends."""
        page_size = self._cache.page_size
        node, start = match.node, match.num_node_pages * page_size
        if match.tail_node is not None:
            node, start = match.tail_node, match.tail_index * page_size + match.num_tail_tokens
        packed = b""
        while node is not None and len(packed) < MAX_CACHED_IDS * TOKEN_BYTES:
            packed += node.tokens[start * TOKEN_BYTES :]
            node, start = _last_used_child(node), 0
        return unpack(packed[: MAX_CACHED_IDS * TOKEN_BYTES])

    def _evicted_run(
        self, namespace: bytes, token_ids: Sequence[int], num_pages: int, *, num_tail: int
    ) -> EvictedRun | None:
        """The run that went on behind the matched pages with the prompt's next page, or with as
        much of it as there is. What only begins alike would not have helped."""
        if not self._evicted.has(namespace):
            return None
        page_bytes = self._cache.page_size * TOKEN_BYTES
        packed = pack(token_ids[: (num_pages + 1) * self._cache.page_size])
        key, end = root_key(namespace), num_pages * page_bytes
        for start in range(0, end, page_bytes):
            key = page_key(key, packed[start : start + page_bytes])
        return self._evicted.find(namespace, key, packed[end:], num_known=num_tail)

    def _is_matched_by(
        self, namespaces: Iterable[bytes], token_ids: Sequence[int], num_matched: int
    ) -> bool:
        """Whether one of the namespaces has at least a page more of the prompt, or all of it. The
        first page is compared first: what most have in common is a template's beginning."""
        tree, limit = self._cache.tree, len(token_ids) - 1
        num_first = min(limit, self._cache.page_size)
        num_wanted = min(limit, num_matched + self._cache.page_size)
        num_left = MAX_MATCHED_NAMESPACES
        for namespace in islice(namespaces, MAX_NAMESPACES):
            first = tree.match(namespace, token_ids, num_first)
            if self._num_matched(first, token_ids) == num_first and num_left:
                num_left -= 1
                match = tree.match(namespace, token_ids, limit)
                if self._num_matched(match, token_ids) >= num_wanted:
                    return True
        return False

    def _namespaces_of(self, owner: str) -> Iterable[bytes]:
        """Those with anything in the tree, the newest first."""
        pages = self._cache.tree.owners.find(owner)
        return reversed(pages.roots) if pages is not None else ()

    def _all_namespaces(self) -> Iterable[bytes]:
        return reversed(self._cache.tree.roots)


def _last_used_child(node: Node) -> Node | None:
    siblings = islice(node.children, MAX_SIBLINGS)
    return max(siblings, key=lambda child: child.last_used, default=None)


def _plain_reason(num_matched: int, *, goes_on: bool) -> OwnMissReason:
    if not num_matched:
        return "never_seen"
    return "differs" if goes_on else "grows"
