"""The radix tree: which token sequences are in which pages, who locks them, who goes next.

Owns nodes, lock counts and the order of eviction. It never allocates or frees a page: methods
that take pages out of the tree return them. Called by the cache only, from one thread.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from prefix_cache.eviction import LruQueue
from prefix_cache.node import Node, PageTokens, Root, common_prefix_len


@dataclass(slots=True)
class Match:
    """Where a query's path ends. `tail_node` holds the best partial page at index `tail_index`.

    | token range                            | where                                    |
    | -------------------------------------- | ---------------------------------------- |
    | [0, len(page_ids) * page_size)         | `page_ids`; the last of them is page     |
    |                                        | `num_node_pages` - 1 of `node`'s edge    |
    | the `num_tail_tokens` after those      | `tail_node.page_ids[tail_index]`         |
    """

    node: Node | None = None
    num_node_pages: int = 0
    page_ids: list[int] = field(default_factory=list)
    tail_node: Node | None = None
    tail_index: int = 0
    num_tail_tokens: int = 0


@dataclass(slots=True)
class Insertion:
    """What became of inserted pages: `page_ids` now hold the tokens, `freed` left the tree."""

    node: Node
    page_ids: list[int]
    freed: list[int]


class RadixTree:
    """One tree per namespace over a common clock and a common order of eviction."""

    def __init__(self, page_size: int) -> None:
        if page_size < 1:
            raise ValueError(f"page_size is {page_size}, expected at least 1")
        self.page_size = page_size
        self.num_pages = 0
        self.num_locked_pages = 0
        self.roots: dict[bytes, Root] = {}
        self.leaves: LruQueue[Node] = LruQueue()
        self._clock = 0

    # Matching

    def match(self, namespace: bytes, token_ids: Sequence[int], num_tokens: int) -> Match:
        """The longest match of the first `num_tokens` tokens. Changes nothing, no clock either."""
        match = Match()
        limit = max(0, min(num_tokens, len(token_ids)))
        node: Node | None = self.roots.get(namespace)
        while node is not None:
            node = self._match_below(node, token_ids, limit=limit, match=match)
        return match

    # Locking

    def lock_match(self, match: Match, *, with_tail: bool) -> tuple[Node | None, Node | None]:
        """Locks the matched path, and the tail's page if wanted; returns the two locked nodes.

        Edges are split so that exactly the matched pages are locked.
        """
        tail_node = None
        if with_tail and match.tail_node is not None:
            tail_node = self._isolate_page(match.tail_node, match.tail_index)
            node = tail_node.parent if match.node is not None else None
        else:
            node = self._split(match.node, match.num_node_pages) if match.node else None
        self._clock += 1
        self._lock(node)
        self._lock(tail_node)
        return node, tail_node

    def unlock(self, node: Node) -> list[int]:
        """Takes one lock off the path to `node`; returns pages that nobody needs any more."""
        self._clock += 1
        for step in _path_to_root(node):
            assert step.num_locks > 0, "unlocked more often than locked"
            step.num_locks -= 1
            step.last_used = self._clock
            if step.num_locks == 0:
                self.num_locked_pages -= step.num_pages
        if node.num_locks or len(node.children):
            return []
        if self._is_partial(node) and _parent_of(node).children.is_superseded(node):
            return self._remove_leaf(node)
        self.leaves.add(node, node.last_used)
        return []

    # Inserting

    def insert_pages(
        self, namespace: bytes, node: Node | None, *, pages: list[PageTokens], page_ids: list[int]
    ) -> Insertion:
        """Inserts full pages below `node` (None: the root) and moves the caller's lock down.

        `node` is locked by the caller; the node returned is locked in its stead, and ends
        exactly at the last of `pages`. Pages that the tree already has are freed, not inserted.
        """
        assert len(pages) == len(page_ids) > 0
        done: list[int] = []
        parent = node or self._root(namespace)
        while len(done) < len(pages):
            child = parent.children.get(pages[len(done)])
            if child is None:
                break
            parent = self._split(child, self._num_equal_pages(child, pages[len(done) :]))
            self._lock_edge(parent)
            done += parent.page_ids
        freed, new_ids = page_ids[: len(done)], page_ids[len(done) :]
        if new_ids:
            freed += self._drop_prefix_leaf(parent, pages[len(done)])
            parent = self._append(parent, pages[len(done) :], new_ids)
        return Insertion(parent, done + new_ids, freed)

    def insert_partial(
        self, namespace: bytes, node: Node | None, *, tokens: PageTokens, page_id: int
    ) -> list[int]:
        """Inserts an unlocked leaf of one partial page below `node`; returns the pages freed."""
        assert 0 < len(tokens) < self.page_size
        parent = node or self._root(namespace)
        if parent.children.has_extension(tokens):
            return [page_id]
        freed = self._drop_prefix_leaf(parent, tokens)
        self._clock += 1
        leaf = self._add_child(parent, [tokens], [page_id])
        self.leaves.add(leaf, leaf.last_used)
        return freed

    # Evicting

    def evict(self, num_pages: int) -> list[int]:
        """Takes that many pages out, from the ends of the least recently used unlocked leaves."""
        assert num_pages <= self.num_pages - self.num_locked_pages
        evicted: list[int] = []
        while len(evicted) < num_pages:
            leaf = self.leaves.least_recent()
            num_missing = num_pages - len(evicted)
            evicted += (
                self._remove_leaf(leaf)
                if leaf.num_pages <= num_missing
                else self._shorten(leaf, num_missing)
            )
        return evicted

    # Private: matching

    def _match_below(
        self, node: Node, token_ids: Sequence[int], *, limit: int, match: Match
    ) -> Node | None:
        """Follows one edge below `node`; returns its end where the whole edge matched."""
        tokens = self._next_page(token_ids, limit, match)
        child = node.children.get(tokens) if len(tokens) == self.page_size else None
        if child is None:
            match.tail_node, match.num_tail_tokens = node.children.closest(tokens)
            return None
        match.node = child
        for index, page in enumerate(child.page_tokens):
            if page != tokens:
                match.num_tail_tokens = common_prefix_len(page, tokens)
                match.tail_node = child if match.num_tail_tokens else None
                match.tail_index = index
                return None
            match.page_ids.append(child.page_ids[index])
            match.num_node_pages = index + 1
            tokens = self._next_page(token_ids, limit, match)
        return child

    def _next_page(self, token_ids: Sequence[int], limit: int, match: Match) -> PageTokens:
        """The tokens of the query after its matched pages, at most a page of them."""
        start = len(match.page_ids) * self.page_size
        return tuple(token_ids[start : min(start + self.page_size, limit)])

    # Private: locks

    def _lock(self, node: Node | None) -> None:
        if node is not None:
            for step in _path_to_root(node):
                self._lock_edge(step)

    def _lock_edge(self, node: Node) -> None:
        """One lock more on this node alone; its ancestors have the lock already, or get it next."""
        if node.num_locks == 0:
            self.num_locked_pages += node.num_pages
            self.leaves.discard(node)
        node.num_locks += 1
        node.last_used = self._clock

    # Private: structure

    def _split(self, node: Node, num_pages: int) -> Node:
        """The node whose edge ends after `num_pages` pages of this one's edge.

        `node` stays the lower part, so a lock on it still covers the whole path; the new upper
        part gets as many locks.
        """
        if num_pages == node.num_pages:
            return node
        assert 0 < num_pages < node.num_pages
        parent = _parent_of(node)
        upper = Node(parent, node.page_tokens[:num_pages], node.page_ids[:num_pages])
        upper.num_locks, upper.last_used = node.num_locks, node.last_used
        parent.children.replace(node, upper)
        del node.page_tokens[:num_pages], node.page_ids[:num_pages]
        node.parent = upper
        upper.children.add(node)
        return upper

    def _isolate_page(self, node: Node, index: int) -> Node:
        """A node whose edge is page `index` of this one's edge and nothing else."""
        page = self._split(node, index + 1)
        if index:
            self._split(page, index)
        return page

    def _append(self, parent: Node, pages: list[PageTokens], page_ids: list[int]) -> Node:
        """Adds new pages below a node that the caller locks; returns where they end, locked.

        A leaf that only the caller locks grows in place, so that a sequence that publishes page
        by page stays one edge.
        """
        is_own_leaf = parent.num_locks == 1 and not len(parent.children)
        if not is_own_leaf:
            parent = self._add_child(parent, pages, page_ids)
            self._lock_edge(parent)
            return parent
        parent.page_tokens += pages
        parent.page_ids += page_ids
        self.num_pages += len(page_ids)
        self.num_locked_pages += len(page_ids)
        return parent

    def _add_child(self, parent: Node, pages: list[PageTokens], page_ids: list[int]) -> Node:
        child = Node(parent, pages, page_ids)
        child.last_used = self._clock
        parent.children.add(child)
        self.num_pages += child.num_pages
        return child

    def _drop_prefix_leaf(self, parent: Node, tokens: PageTokens) -> list[int]:
        """Drops the unlocked partial leaf that `tokens`, about to be inserted, make useless.

        `parent` may be left without children for the moment: the caller adds one.
        """
        leaf = parent.children.longest_prefix(tokens)
        if leaf is None or leaf.num_locks:
            return []
        self._detach(leaf)
        return leaf.page_ids

    def _remove_leaf(self, leaf: Node) -> list[int]:
        """Takes an unlocked leaf out; its parent becomes a leaf, or an empty root goes too."""
        self._detach(leaf)
        parent = _parent_of(leaf)
        if len(parent.children) == 0:
            if isinstance(parent, Root):
                del self.roots[parent.namespace]
            elif parent.num_locks == 0:
                self.leaves.add(parent, parent.last_used)
        return leaf.page_ids

    def _detach(self, leaf: Node) -> None:
        assert leaf.num_locks == len(leaf.children) == 0
        self.leaves.discard(leaf)
        _parent_of(leaf).children.remove(leaf)
        self.num_pages -= leaf.num_pages

    def _shorten(self, leaf: Node, num_pages: int) -> list[int]:
        evicted = leaf.page_ids[-num_pages:]
        del leaf.page_ids[-num_pages:], leaf.page_tokens[-num_pages:]
        self.num_pages -= num_pages
        return evicted

    def _root(self, namespace: bytes) -> Root:
        root = self.roots.get(namespace)
        if root is None:
            root = self.roots[namespace] = Root(namespace)
        return root

    def _num_equal_pages(self, node: Node, pages: list[PageTokens]) -> int:
        pairs = zip(node.page_tokens, pages, strict=False)
        return next(
            (index for index, (ours, theirs) in enumerate(pairs) if ours != theirs),
            min(node.num_pages, len(pages)),
        )

    def _is_partial(self, node: Node) -> bool:
        return len(node.page_tokens[-1]) < self.page_size


def _path_to_root(node: Node) -> Iterator[Node]:
    """The node and its ancestors below the root."""
    step = node
    while step.parent is not None:
        yield step
        step = step.parent


def _parent_of(node: Node) -> Node:
    assert node.parent is not None, "a root has no parent"
    return node.parent
