"""Who goes next: the least recently used of the tree's unlocked leaves.

Owns the order only. The tree says which leaves are in it; `add`, `discard` and `least_recent`
cost O(log n) amortized and never look at the tree.
"""

import heapq
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)

# Below this size a heap of stale entries is not worth rebuilding.
_MIN_COMPACT_LEN = 64


class LruQueue(Generic[Item]):
    """A set of items ordered by the clock each was added with.

    A heap with tickets: an entry whose ticket is no longer its item's is stale and skipped. The
    heap is rebuilt when more than half of it is stale, so it stays within twice the live items.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Item]] = []
        self._tickets: dict[Item, int] = {}
        self._next_ticket = 0

    def __len__(self) -> int:
        return len(self._tickets)

    def __contains__(self, item: Item) -> bool:
        return item in self._tickets

    def __iter__(self) -> Iterator[Item]:
        return iter(self._tickets)

    def add(self, item: Item, last_used: int) -> None:
        """Adds the item, or moves it to `last_used`. Of equal clocks the first added goes first."""
        self._tickets[item] = self._next_ticket
        heapq.heappush(self._heap, (last_used, self._next_ticket, item))
        self._next_ticket += 1
        self._compact_if_stale()

    def discard(self, item: Item) -> None:
        """Takes the item out; nothing happens where it is not in."""
        if self._tickets.pop(item, None) is not None:
            self._compact_if_stale()

    def least_recent(self) -> Item:
        """The item with the smallest clock, left in place. Raises IndexError when empty."""
        while not self._is_live(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][2]

    def check_invariants(self) -> None:
        """Raises AssertionError where an item has no entry or the heap has outgrown its bound."""
        live = [entry[2] for entry in self._heap if self._is_live(entry)]
        assert len(live) == len(self._tickets), "an item has no entry in the heap"
        assert set(live) == set(self._tickets), "the heap and the set of items differ"
        assert len(self._heap) <= max(_MIN_COMPACT_LEN, 2 * len(self._tickets)), "stale entries"

    def _is_live(self, entry: tuple[int, int, Item]) -> bool:
        return self._tickets.get(entry[2]) == entry[1]

    def _compact_if_stale(self) -> None:
        if len(self._heap) > max(_MIN_COMPACT_LEN, 2 * len(self._tickets)):
            self._heap = [entry for entry in self._heap if self._is_live(entry)]
            heapq.heapify(self._heap)
