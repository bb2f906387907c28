"""Who goes next: of the tree's unlocked leaves first those without a pin, then the others; of each
class the least recently used.

Owns the order only. The tree says which leaves are in it, and takes a leaf out before it changes
its `last_used`, which no two leaves have in common.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from operator import attrgetter

from prefix_cache.node import Node
from prefix_cache.pins import Pins
from prefix_cache.sorted_buckets import SortedBuckets

_last_used = attrgetter("last_used")


class LeafQueue:
    """Unlocked leaves in two classes, each in the order of use: what is pinned goes last."""

    def __init__(self) -> None:
        self.normal: SortedBuckets[Node] = SortedBuckets(_last_used)
        self.pinned: SortedBuckets[Node] = SortedBuckets(_last_used)

    def __iter__(self) -> Iterator[Node]:
        return chain(self.normal, self.pinned)

    def of(self, leaf: Node) -> SortedBuckets[Node]:
        return self.pinned if Pins.is_pinned(leaf) else self.normal


class EvictionOrder:
    """The order over all leaves, and one more for each owner with a quota over its own."""

    def __init__(self) -> None:
        self.all = LeafQueue()
        self.of_owner: dict[str, LeafQueue] = {}

    def add(self, leaf: Node) -> None:
        self.all.of(leaf).add(leaf)
        if self.of_owner and (own := self._own(leaf)) is not None:
            own.of(leaf).add(leaf)

    def remove(self, leaf: Node) -> None:
        """The leaf is about to be locked, or to leave the tree."""
        self.all.of(leaf).remove(leaf)
        if self.of_owner and (own := self._own(leaf)) is not None:
            own.of(leaf).remove(leaf)

    def unpin(self, leaf: Node) -> None:
        """The leaf has just lost its last pin: it keeps its place by use, among the others."""
        for queue in (self.all, self._own(leaf)):
            if queue is not None:
                queue.pinned.remove(leaf)
                queue.normal.add(leaf)

    def first(self, owner: str | None = None) -> Node | None:
        """Who goes next of all, or of one owner with a quota."""
        queue = self.all if owner is None else self.of_owner[owner]
        return queue.normal.first() or queue.pinned.first()

    def follow(self, owner: str, leaves: Iterable[Node]) -> None:
        """Keeps an order of the owner's own leaves from now on; `leaves` are those in the tree."""
        queue = self.of_owner[owner] = LeafQueue()
        for leaf in leaves:
            queue.of(leaf).add(leaf)

    def unfollow(self, owner: str) -> None:
        self.of_owner.pop(owner, None)

    def _own(self, leaf: Node) -> LeafQueue | None:
        return self.of_owner.get(leaf.root.pages.owner)
