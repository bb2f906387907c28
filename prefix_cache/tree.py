"""The radix tree: which token sequences are in which pages, who locks them, who goes next.

Owns nodes, lock counts, what each owner has, and with its parts the pins and the order of eviction.
It never allocates or frees a page: methods that take pages out of the tree return them. Called by
the cache only, from one thread.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from prefix_cache.children import (
    change_edge,
    child_with,
    is_superseded,
    longest_prefix,
    with_child,
    with_replaced,
    without_child,
)
from prefix_cache.eviction import EvictionOrder
from prefix_cache.expiries import Pin
from prefix_cache.matching import Match, find_match
from prefix_cache.node import (
    Node,
    PartialLeaf,
    Root,
    pack_page_ids,
)
from prefix_cache.observer import Cause
from prefix_cache.owners import OwnerPages, Owners
from prefix_cache.packed_tokens import TOKEN_BYTES, common_bytes
from prefix_cache.page_ledger import PageLedger
from prefix_cache.pins import Pins

# A page at the end of an edge comes and goes with a copy of the edge. One of 100,000 tokens takes
# 40 us to copy; longer ones than this are cut first, or go on in another node.
MAX_COPIED_PAGES = 256


@dataclass(slots=True)
class Insertion:
    """What became of inserted pages: `page_ids` now hold the tokens, `freed` left the tree."""

    node: Node
    page_ids: list[int]
    freed: list[int]


class RadixTree:
    """One tree per namespace over a common clock and a common order of eviction.

    The clock is wall-clock seconds, moved on by the least step where that would not tell two uses
    apart: each lock or unlock of a path has a time of its own.
    """

    def __init__(
        self,
        page_size: int,
        *,
        pins: Pins,
        ledger: PageLedger | None = None,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        if page_size < 1:
            raise ValueError(f"page_size is {page_size}, expected at least 1")
        self.page_size = page_size
        self.num_pages = 0
        self.num_locked_pages = 0
        self.roots: dict[bytes, Root] = {}
        self.owners = Owners()
        self.pins = pins
        self.order = EvictionOrder()
        self._ledger = ledger
        self._clock_ns = clock_ns
        self._clock = 0.0
        self._page_bytes = page_size * TOKEN_BYTES

    # Matching

    def match(self, namespace: bytes, token_ids: Sequence[int], num_tokens: int) -> Match:
        """The longest match of the first `num_tokens` tokens. Changes nothing, no clock either."""
        root = self.roots.get(namespace)
        return Match() if root is None else find_match(root, token_ids, num_tokens)

    # Locking

    def lock_match(self, match: Match, *, with_tail: bool) -> tuple[Node | None, Node | None]:
        """Locks the matched path, and the tail's page if wanted; returns the two locked nodes.

        Edges are split so that exactly the matched pages are locked. Their nodes count a hit.
        """
        tail_node = None
        if with_tail and match.tail_node is not None:
            tail_node = self._isolate_page(match.tail_node, match.tail_index)
            node = tail_node.parent if match.node is not None else None
        else:
            node = self._split(match.node, match.num_node_pages) if match.node else None
        self._tick()
        for end in (node, tail_node):
            for step in _path_to_root(end):
                self._lock_edge(step)
        for step in _path_to_root(tail_node or node):
            step.num_hits += 1
        return node, tail_node

    def unlock(self, node: Node) -> list[int]:
        """Takes one lock off the path to `node`; returns pages that nobody needs any more."""
        self._tick()
        for step in _path_to_root(node):
            assert step.num_locks > 0, "unlocked more often than locked"
            step.num_locks -= 1
            step.last_used = self._clock
            if step.num_locks == 0:
                self.num_locked_pages -= step.num_pages
        if node.num_locks or node.children:
            return []
        self.order.add(node)
        if not isinstance(node, PartialLeaf) or not is_superseded(_parent_of(node).children, node):
            return []
        page_ids = node.page_ids
        self._detach(node)
        return page_ids

    # Inserting

    def insert_pages(
        self,
        namespace: bytes,
        node: Node | None,
        *,
        tokens: bytes,
        page_ids: list[int],
        owner: str = "",
    ) -> Insertion:
        """Inserts full pages below `node` (None: the root) and moves the caller's lock down.

        `node` is locked by the caller; the node returned is locked in its stead, and ends
        exactly at the last of the pages. Pages that the tree already has are freed, not inserted.
        """
        size = self._page_bytes
        assert len(tokens) == len(page_ids) * size > 0
        done: list[int] = []
        start = 0
        parent = node or self._root(namespace, owner)
        while start < len(tokens):
            child = child_with(parent.children, tokens[start : start + size])
            if child is None:
                break
            theirs = child.tokens
            num_equal = common_bytes(theirs, tokens[start : start + len(theirs)]) // size
            parent = self._split(child, num_equal)
            self._lock_edge(parent)
            done += parent.page_ids
            start += num_equal * size
        freed, new_ids = page_ids[: len(done)], page_ids[len(done) :]
        if new_ids:
            freed += self._drop_prefix_leaf(parent, tokens[start : start + size])
            parent = self._append(parent, tokens[start:], new_ids)
        return Insertion(parent, done + new_ids, freed)

    def insert_partial(
        self, namespace: bytes, node: Node | None, *, tokens: bytes, page_id: int, owner: str = ""
    ) -> list[int]:
        """Inserts an unlocked leaf of one partial page below `node`; returns the pages freed."""
        assert 0 < len(tokens) < self._page_bytes
        parent = node or self._root(namespace, owner)
        if child_with(parent.children, tokens) is not None:
            return [page_id]
        freed = self._drop_prefix_leaf(parent, tokens)
        self._tick()
        self.order.add(self._add_child(parent, PartialLeaf(parent, tokens, page_id)))
        return freed

    # Pinning

    def pin(self, node: Node, pin: Pin, *, num_pages: int) -> int:
        """Pins the first pages of the path to `node`, which the caller locks, as far as the path
        goes and the owner may; returns how many are pinned."""
        path = list(_path_to_root(node))
        num_above = sum(step.num_pages for step in path)
        num_pages = min(num_pages, num_above, self.pins.max_pages(node.root.pages))
        if num_pages < 1:
            return 0
        for step in path:
            num_above -= step.num_pages
            if num_above < num_pages:
                pin.node = self._split(step, num_pages - num_above)
                break
        self._unpin(self.pins.add(pin))
        return 0 if pin.node is None else num_pages

    def expire_pins(self) -> None:
        self._unpin(self.pins.expire(self._clock_ns()))

    def set_quota(self, owner: str, max_pages: int | None) -> None:
        """Takes the first quota of an owner with a walk over what it has; later ones are O(1)."""
        pages = self.owners.of(owner)
        pages.max_pages = max_pages
        if max_pages is None:
            self.order.unfollow(owner)
            self.owners.forget_if_idle(pages)
        elif owner not in self.order.of_owner:
            nodes = (node for root in pages.roots.values() for node in descendants(root))
            self.order.follow(owner, [node for node in nodes if node.is_evictable])
        self._unpin(self.pins.trim(pages))

    # Evicting

    def evict(self, num_pages: int, *, for_owner: str = "") -> list[int]:
        """Takes that many pages out, from the ends of the leaves that go first."""
        assert num_pages <= self.num_pages - self.num_locked_pages
        self.expire_pins()
        evicted: list[int] = []
        while len(evicted) < num_pages:
            leaf = self.order.first()
            assert leaf is not None, "no leaf, but pages that nobody locks"
            is_own = leaf.root.pages.owner == for_owner
            cause: Cause = "own_request" if is_own else "other_tenant"
            evicted += self._give_up(
                leaf, num_pages - len(evicted), cause=cause, for_owner=for_owner
            )
        return evicted

    def evict_over_quota(self, owner: str) -> list[int]:
        """Takes out what the owner has over its quota, of its own leaves and as far as unlocked."""
        pages = self.owners.find(owner)
        if pages is None or not pages.num_over_quota:
            return []
        self.expire_pins()
        evicted: list[int] = []
        while pages.num_over_quota:
            leaf = self.order.first(owner)
            if leaf is None:
                break
            evicted += self._give_up(leaf, pages.num_over_quota, cause="quota", for_owner=owner)
        return evicted

    def flush(self, owner: str | None = None) -> list[int]:
        """Takes out all pages that nobody locks, of one owner or of all (None)."""
        flushed: list[int] = []
        roots = [root for root in self.roots.values() if owner in (None, root.owner)]
        for root in roots:
            # Last child first, leaves before what is above them: lists are cut at their ends.
            for node in reversed(list(descendants(root))):
                if node.is_evictable:
                    flushed += self._give_up(
                        node, node.num_pages, cause="flush", for_owner=owner or ""
                    )
        return flushed

    # Private: locks

    def _tick(self) -> None:
        self._clock = max(self._clock_ns() / 1e9, math.nextafter(self._clock, math.inf))

    def _lock_edge(self, node: Node) -> None:
        """One lock more on this node alone; its ancestors have the lock already, or get it next."""
        if node.num_locks == 0:
            self.num_locked_pages += node.num_pages
            if not node.children:
                self.order.remove(node)
        node.num_locks += 1
        node.last_used = self._clock

    def _unpin(self, nodes: list[Node]) -> None:
        for node in nodes:
            if node.is_evictable:
                self.order.unpin(node)

    # Private: structure

    def _split(self, node: Node, num_pages: int) -> Node:
        """The node whose edge ends after `num_pages` pages of this one's edge.

        `node` stays the lower part, so a lock on it still covers the whole path; the new upper
        part gets as many locks, hits and pins.
        """
        if num_pages == node.num_pages:
            return node
        assert 0 < num_pages < node.num_pages
        parent = _parent_of(node)
        upper = Node(parent, node.cut(0, num_pages))
        upper.num_locks, upper.last_used = node.num_locks, node.last_used
        upper.num_hits = node.num_hits
        parent.children = with_replaced(parent.children, node, upper)
        node.edge = node.cut(num_pages, node.num_pages)
        node.parent = upper
        upper.children = (node,)
        self.pins.split(upper, node)
        return upper

    def _isolate_page(self, node: Node, index: int) -> Node:
        """A node whose edge is page `index` of this one's edge and nothing else."""
        page = self._split(node, index + 1)
        if index:
            self._split(page, index)
        return page

    def _append(self, parent: Node, tokens: bytes, page_ids: list[int]) -> Node:
        """Adds new pages below a node that the caller locks; returns where they end, locked.

        A leaf that only the caller locks and no pin ends at grows in place, so that a sequence
        that publishes page by page has few edges.
        """
        if self._ledger is not None:
            self._ledger.entered(
                parent.root.namespace, parent.last_page, tokens=tokens, page_ids=page_ids
            )
        is_own_leaf = parent.num_locks == 1 and not parent.children
        is_own_leaf = is_own_leaf and not self.pins.is_pinned(parent)
        if not is_own_leaf or parent.num_pages >= MAX_COPIED_PAGES:
            parent = self._add_child(parent, Node(parent, tokens + pack_page_ids(page_ids)))
            parent.num_locks = 1
        else:
            page_ids_there = parent.packed_page_ids
            edge = parent.tokens + tokens + page_ids_there + pack_page_ids(page_ids)
            change_edge(_parent_of(parent).children, parent, edge)
            self._count(parent.root.pages, len(page_ids))
        self.num_locked_pages += len(page_ids)
        return parent

    def _add_child(self, parent: Node, child: Node) -> Node:
        first_page = child.edge[: self._page_bytes]
        assert child_with(parent.children, first_page) is None, "two children with one first page"
        child.last_used = self._clock
        parent.children = with_child(parent.children, child)
        self._count(parent.root.pages, child.num_pages)
        return child

    def _drop_prefix_leaf(self, parent: Node, tokens: bytes) -> list[int]:
        """Drops the unlocked partial leaf that `tokens`, about to be inserted, make useless.

        `parent` may be left without children for the moment: the caller adds one.
        """
        leaf = longest_prefix(parent.children, tokens)
        if leaf is None or leaf.num_locks:
            return []
        page_ids = leaf.page_ids
        self._detach(leaf, leaves_parent=True)
        return page_ids

    def _give_up(self, leaf: Node, num_pages: int, *, cause: Cause, for_owner: str) -> list[int]:
        """Evicts at most that many pages from the end of an unlocked leaf."""
        page_ids, before = leaf.page_ids, _parent_of(leaf).last_page
        num_left = len(page_ids) - num_pages
        if num_left > MAX_COPIED_PAGES:
            self._split(leaf, num_left - MAX_COPIED_PAGES // 2)
            return self._give_up(leaf, num_pages, cause=cause, for_owner=for_owner)
        if num_left > 0:
            before = page_ids[num_left - 1]
            del page_ids[:num_left]
        else:
            num_left = 0
        if self._ledger is not None:
            start = num_left * self._page_bytes
            self._ledger.evicted(
                leaf.root.namespace,
                before,
                first_page=leaf.edge[start : start + self._page_bytes],
                page_ids=page_ids,
                cause=cause,
                for_owner=for_owner,
            )
        if num_left:
            change_edge(_parent_of(leaf).children, leaf, leaf.cut(0, num_left))
            self.pins.shortened(leaf, len(page_ids))
            self._count(leaf.root.pages, -len(page_ids))
        else:
            self._detach(leaf)
        return page_ids

    def _detach(self, leaf: Node, *, leaves_parent: bool = False) -> None:
        """Takes an unlocked leaf out. Its parent becomes a leaf, or an empty root goes too, but
        for `leaves_parent`."""
        assert not leaf.num_locks
        assert not leaf.children
        parent, pages = _parent_of(leaf), leaf.root.pages
        num_pages = leaf.num_pages
        self.order.remove(leaf)
        if pages.num_pinned:
            self.pins.removed(leaf)
        parent.children = without_child(parent.children, leaf)
        leaf.parent = None
        self.num_pages -= num_pages
        pages.num_pages -= num_pages
        if parent.children or leaves_parent:
            return
        if isinstance(parent, Root):
            del self.roots[parent.namespace], pages.roots[parent.namespace]
            self.owners.forget_if_idle(pages)
        elif parent.num_locks == 0:
            self.order.add(parent)

    def _count(self, pages: OwnerPages, num_pages: int) -> None:
        self.num_pages += num_pages
        pages.num_pages += num_pages

    def _root(self, namespace: bytes, owner: str) -> Root:
        root = self.roots.get(namespace)
        if root is None:
            pages = self.owners.of(owner)
            root = self.roots[namespace] = pages.roots[namespace] = Root(
                namespace, pages, page_bytes=self._page_bytes
            )
        return root


def descendants(root: Node) -> Iterator[Node]:
    """All nodes below, each before what hangs below it, children in order."""
    pending: list[Node] = [*root.children]
    pending.reverse()
    while pending:
        node = pending.pop()
        yield node
        pending.extend(reversed([*node.children]))


def _path_to_root(node: Node | None) -> Iterator[Node]:
    """The node and its ancestors below the root."""
    while node is not None and node.parent is not None:
        yield node
        node = node.parent


def _parent_of(node: Node) -> Node:
    assert node.parent is not None, "a root has no parent"
    return node.parent
