"""The prefix cache as the engine sees it: leases over pages. Owns the state of every page.

    free   in the pool      held   in one lease, being written      cached   in the tree

One thread only. A sequence's life: acquire, extend, (copy the tail, release_tail), publish as
pages fill, release.
"""

import time
from collections.abc import Callable, Sequence

from prefix_cache.errors import LeaseEnded, OutOfPages
from prefix_cache.expiries import Pin
from prefix_cache.identity import page_identities, tenant_root
from prefix_cache.invariants import check_tree
from prefix_cache.lease import Lease, PageCounts, TailMatch
from prefix_cache.observer import CacheObserver
from prefix_cache.packed_tokens import pack
from prefix_cache.page_ledger import PageLedger
from prefix_cache.page_notes import PageNotes, StoredNote
from prefix_cache.page_pool import PagePool
from prefix_cache.pins import Pins
from prefix_cache.tree import RadixTree

_MIN_NOTES = 1024


class PrefixCache:
    """Finds, shares, publishes and evicts pages of computed tokens.

    Namespaces never share pages. Token ids are compared before a page is reused; no hash decides.
    """

    def __init__(
        self,
        *,
        num_pages: int,
        page_size: int = 16,
        pin_share: float = 0.25,
        clock_ns: Callable[[], int] = time.time_ns,
        identity_root: bytes | None = None,
        observer: CacheObserver | None = None,
    ) -> None:
        self._pool = PagePool(num_pages)
        self._identity_root = identity_root
        self._notes: PageNotes | None = None
        if identity_root is not None:
            self._notes = PageNotes(
                num_pages=num_pages,
                identity_root=identity_root,
                max_notes=max(_MIN_NOTES, num_pages),
            )
        self._tree = RadixTree(
            page_size,
            pins=Pins(share=pin_share, num_pool_pages=num_pages),
            ledger=PageLedger(
                page_size=page_size, num_pages=num_pages, notes=self._notes, observer=observer
            ),
            clock_ns=clock_ns,
        )
        self._open_leases: set[Lease] = set()
        self._num_held = 0
        self.num_evicted_pages = 0

    @property
    def num_pages(self) -> int:
        return self._pool.num_pages

    @property
    def page_size(self) -> int:
        return self._tree.page_size

    @property
    def tree(self) -> RadixTree:
        """To be read, between two calls of the cache."""
        return self._tree

    def acquire(
        self, namespace: bytes, token_ids: Sequence[int], *, max_tokens: int, owner: str = ""
    ) -> Lease:
        """Locks the longest match of at most `max_tokens` tokens, exact to the token.

        `owner` is whom the namespace's pages count for; the same at each call for a namespace.

        The page that the tail is copied from is locked until `release_tail`. A sequence that
        needs the whole pool gets no tail, as that page would be one too many.
        """
        match = self._tree.match(namespace, token_ids, max_tokens)
        has_room = len(token_ids) // self.page_size + 1 < self.num_pages
        node, tail_node = self._tree.lock_match(match, with_tail=has_room)
        lease = Lease(
            page_ids=match.page_ids,
            num_shared_tokens=match.num_pages * self.page_size,
            num_locked_pages=match.num_pages,
            namespace=namespace,
            node=node,
            owner=owner,
        )
        if tail_node is not None:
            lease.tail_node = tail_node
            lease.tail = TailMatch(tail_node.page_ids[0], match.num_tail_tokens)
            lease.num_tail_tokens = match.num_tail_tokens
        self._open_leases.add(lease)
        return lease

    def acquire_none(self, owner: str = "") -> Lease:
        """A lease that matches nothing and whose pages never enter the tree."""
        lease = Lease(owner=owner)
        self._open_leases.add(lease)
        return lease

    def peek(self, namespace: bytes, token_ids: Sequence[int]) -> int:
        """How many tokens a match would have. Changes nothing, not even the order of eviction."""
        match = self._tree.match(namespace, token_ids, len(token_ids))
        return match.num_pages * self.page_size + match.num_tail_tokens

    def extend(self, lease: Lease, num_pages: int) -> list[int]:
        """Appends pages of the lease's own, evicting where too few are free.

        Raises OutOfPages, before anything is evicted, where that would not be enough.
        """
        _require_open(lease)
        num_available = self.num_available()
        if num_pages > num_available:
            raise OutOfPages(num_pages, num_available)
        self._evict(num_pages - self._pool.num_free, for_owner=lease.owner)
        page_ids = self._pool.allocate(num_pages)
        lease.page_ids += page_ids
        self._num_held += num_pages
        return page_ids

    def publish(self, lease: Lease, token_ids: Sequence[int]) -> None:
        """Puts the pages that `token_ids` fill into the tree, locked by the lease.

        `token_ids` are all tokens whose KV is computed, from the first on. Only the pages filled
        since the last call are looked at. Where the tree has a page already, `lease.page_ids`
        gets that one and the duplicate is freed.
        """
        _require_open(lease)
        start, end = lease.num_locked_pages, len(token_ids) // self.page_size
        if lease.namespace is None or end <= start:
            return
        assert end <= len(lease.page_ids), "more tokens published than the lease has pages for"
        insertion = self._tree.insert_pages(
            lease.namespace,
            lease.node,
            tokens=pack(token_ids[start * self.page_size : end * self.page_size]),
            page_ids=lease.page_ids[start:end],
            owner=lease.owner,
        )
        lease.page_ids[start:end] = insertion.page_ids
        lease.node, lease.num_locked_pages = insertion.node, end
        self._num_held -= end - start
        self._pool.free(insertion.freed)
        self._keep_quota(lease.owner)

    def release_tail(self, lease: Lease) -> None:
        """Unlocks the tail's page: it has been copied. Idempotent."""
        lease.tail = None
        if lease.tail_node is not None:
            self._pool.free(self._tree.unlock(lease.tail_node))
            lease.tail_node = None
            self._keep_quota(lease.owner)

    def release(self, lease: Lease, token_ids: Sequence[int] | None) -> None:
        """Ends the lease. Idempotent.

        `token_ids` (all tokens with computed KV) are kept for later matches, a partial last page
        included; None keeps only what was published. Pages beyond are freed.
        """
        if not lease.is_open:
            return
        self.release_tail(lease)
        if token_ids is not None:
            self.publish(lease, token_ids)
            self._publish_partial(lease, token_ids)
        if lease.node is not None:
            self._pool.free(self._tree.unlock(lease.node))
            lease.node = None
        self._num_held -= lease.num_held_pages
        self._pool.free(lease.page_ids[lease.num_locked_pages :])
        lease.page_ids, lease.num_locked_pages, lease.is_open = [], 0, False
        self._open_leases.remove(lease)
        self._keep_quota(lease.owner)

    def pin(self, lease: Lease, num_tokens: int, *, until_ns: int, key: str = "") -> int:
        """Makes the lease's published pages of the first tokens the last to be evicted.

        The page in which `num_tokens` ends counts whole; pages that are not in the tree yet do
        not count. Pins with a key end the older ones of that key and owner, made through other
        leases; one without a key stands by itself. Returns how many pages are pinned: fewer, or
        none, where the owner's share is used up by pins that expire later.
        """
        _require_open(lease)
        self._tree.expire_pins()
        if lease.node is None:
            return 0
        num_pages = -(-num_tokens // self.page_size)
        pin = Pin(key=key, until_ns=until_ns, source=lease, node=None)
        return self._tree.pin(lease.node, pin, num_pages=num_pages)

    def set_quota(self, owner: str, max_pages: int | None) -> None:
        """Bounds the pages of one owner in the tree; None = no bound.

        Over it the owner's own least recently used pages go, as far as nobody uses them: at once,
        and whenever pages are published or released.
        """
        self._tree.set_quota(owner, max_pages)
        self._keep_quota(owner)

    def take_stored(self) -> list[StoredNote]:
        """The full pages that entered the tree since the last call; none without identity root.

        As many as the pool has pages (at least 1,024) are kept, then the oldest are dropped. What
        has left the tree since is still among them: ask `is_current`.
        """
        return self._notes.take_stored() if self._notes is not None else []

    def take_removed(self) -> list[bytes]:
        """The identities of full pages that left the tree since the last call, and are not in it
        again; bounded as those of `take_stored` are."""
        return self._notes.take_removed() if self._notes is not None else []

    def is_current(self, page_id: int, generation: int) -> bool:
        """Whether the page still holds what it held when it got that generation."""
        return self._notes is not None and self._notes.is_current(page_id, generation)

    def identities_of(
        self, namespace: bytes, token_ids: Sequence[int], *, num_pages: int
    ) -> list[bytes]:
        """The identities of the first full pages of a sequence; none without an identity root."""
        if self._identity_root is None:
            return []
        root = tenant_root(self._identity_root, namespace)
        tokens = token_ids[: num_pages * self.page_size]
        return list(page_identities(root, tokens, page_size=self.page_size))

    def next_free(self, num_pages: int) -> list[int]:
        """The free pages that are taken next, at most so many."""
        return self._pool.next_free(num_pages)

    def num_available(self) -> int:
        """Pages that `extend` can give: free ones and those of unlocked nodes. O(1)."""
        return self._pool.num_free + self._tree.num_pages - self._tree.num_locked_pages

    def counts(self) -> PageCounts:
        self._tree.expire_pins()
        return PageCounts(
            free=self._pool.num_free,
            cached=self._tree.num_pages,
            locked=self._tree.num_locked_pages,
            held=self._num_held,
            total=self._pool.num_pages,
            pinned=self._tree.pins.num_pages,
        )

    def flush(self, owner: str | None = None) -> int:
        """Forgets every page that no lease locks, of one owner or (None) of all; returns how many.
        Not counted as evictions."""
        page_ids = self._tree.flush(owner)
        self._pool.free(page_ids)
        return len(page_ids)

    def check_invariants(self) -> None:
        """Raises AssertionError where pages, locks, order or counters contradict each other."""
        leases = self._open_leases
        nodes = [node for lease in leases for node in (lease.node, lease.tail_node) if node]
        self._pool.check_invariants()
        cached = check_tree(self._tree, nodes)
        held = [page for lease in leases for page in lease.page_ids[lease.num_locked_pages :]]
        assert self._num_held == len(held) == len(set(held)), "the counter of held pages is wrong"
        assert cached.isdisjoint(held), "a page is both cached and held"
        assert not any(self._pool.is_free(page) for page in cached.union(held)), "a used free page"
        assert self._pool.num_free + len(cached) + len(held) == self._pool.num_pages, "lost pages"
        for lease in leases:
            assert lease.is_open
            assert lease.page_ids[: lease.num_locked_pages] == _path_pages(lease), "a strange path"

    def _evict(self, num_pages: int, *, for_owner: str) -> None:
        if num_pages > 0:
            self._pool.free(self._tree.evict(num_pages, for_owner=for_owner))
            self.num_evicted_pages += num_pages

    def _keep_quota(self, owner: str) -> None:
        page_ids = self._tree.evict_over_quota(owner)
        self._pool.free(page_ids)
        self.num_evicted_pages += len(page_ids)

    def _publish_partial(self, lease: Lease, token_ids: Sequence[int]) -> None:
        """Puts the page that `token_ids` end in, if not full, into the tree, unlocked."""
        index = lease.num_locked_pages
        tokens = pack(token_ids[index * self.page_size : (index + 1) * self.page_size])
        if lease.namespace is None or not tokens:
            return
        assert index < len(lease.page_ids), "more tokens released than the lease has pages for"
        page_id = lease.page_ids.pop(index)
        self._num_held -= 1
        self._pool.free(
            self._tree.insert_partial(
                lease.namespace, lease.node, tokens=tokens, page_id=page_id, owner=lease.owner
            )
        )


def _require_open(lease: Lease) -> None:
    if not lease.is_open:
        raise LeaseEnded


def _path_pages(lease: Lease) -> list[int]:
    """The pages on the tree's path to the lease's node."""
    page_ids: list[int] = []
    step = lease.node
    while step is not None:
        page_ids[:0] = step.page_ids
        step = step.parent
    return page_ids
