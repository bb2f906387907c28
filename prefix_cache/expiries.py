"""Pins in the order in which they expire."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prefix_cache.node import Node

# Below this size a heap of ended pins is not worth rebuilding.
_MIN_COMPACT_LEN = 64


@dataclass(eq=False, slots=True)
class Pin:
    """Covers the path to `node`, all of its edge included, until a time. `node` None = it ended.

    `source` is the lease it came through: pins of one key and one lease stand side by side.
    """

    key: str
    until_ns: int
    source: object
    node: "Node | None"


class Expiries:
    """A heap of pins. Ended ones are skipped, and never more than half of it."""

    __slots__ = ("_heap", "_next_ticket", "_num_live")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Pin]] = []
        self._num_live = 0
        self._next_ticket = 0

    def __len__(self) -> int:
        return self._num_live

    def __iter__(self) -> Iterator[Pin]:
        return (pin for _, _, pin in self._heap if pin.node is not None)

    def add(self, pin: Pin) -> None:
        heapq.heappush(self._heap, (pin.until_ns, self._next_ticket, pin))
        self._next_ticket += 1
        self._num_live += 1

    def note_ended(self) -> None:
        """One of the pins has ended: its `node` is None now."""
        self._num_live -= 1
        if len(self._heap) > max(_MIN_COMPACT_LEN, 2 * self._num_live):
            self._heap = [entry for entry in self._heap if entry[2].node is not None]
            heapq.heapify(self._heap)

    def first(self) -> Pin | None:
        """The pin that expires first, left in place."""
        while self._heap and self._heap[0][2].node is None:
            heapq.heappop(self._heap)
        return self._heap[0][2] if self._heap else None

    def check_invariants(self) -> None:
        """Raises AssertionError where the count is wrong or the heap has outgrown its bound."""
        assert sum(1 for _ in self) == self._num_live, "the counter of pins is wrong"
        assert len(self._heap) <= max(_MIN_COMPACT_LEN, 2 * self._num_live), "ended pins stay"
