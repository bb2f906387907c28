"""Who goes next: of the tree's unlocked leaves first those without a pin, then the others; of each
class the least recently used.

Owns the order only. The tree says which leaves are in it, and that it changes `last_used` only of
nodes that are not.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Generic, Protocol, TypeVar

from prefix_cache.node import Node
from prefix_cache.pins import Pins

# Below this size stale entries are not worth a rebuild.
_MIN_COMPACT_LEN = 64


class Used(Protocol):
    """What can be ordered. No two items in a queue have the same clock."""

    last_used: float


Item = TypeVar("Item", bound=Used)


class LruQueue(Generic[Item]):
    """Items ordered by their `last_used`. An entry is stale, and skipped, once its item has another
    clock or is no member any more.

    What was used last nearly always joins last, and is then appended to a log: O(1) and 16 bytes.
    Only an inner node that has lost its children joins late; a heap has those, O(log n). Both
    are rebuilt when more than half of them is stale.
    """

    def __init__(self, is_member: Callable[[Item], bool]) -> None:
        self._is_member = is_member
        self._log: deque[Item] = deque()
        self._log_clocks: deque[float] = deque()
        self._late: list[tuple[float, int, Item]] = []
        self._next_ticket = 0
        self._newest = float("-inf")
        self._num_items = 0

    def __len__(self) -> int:
        return self._num_items

    def __iter__(self) -> Iterator[Item]:
        logged = zip(self._log_clocks, self._log, strict=True)
        late = ((clock, item) for clock, _, item in self._late)
        return (item for clock, item in chain(logged, late) if self._is_live(clock, item))

    def add(self, item: Item) -> None:
        """Takes in a member that is not in."""
        self._num_items += 1
        clock = item.last_used
        if clock > self._newest:
            self._newest = clock
            self._log.append(item)
            self._log_clocks.append(clock)
        else:
            heapq.heappush(self._late, (clock, self._next_ticket, item))
            self._next_ticket += 1

    def discard(self) -> None:
        """Notes that one of the items is about to change its clock, or to be no member."""
        self._num_items -= 1
        if len(self._log) + len(self._late) > max(_MIN_COMPACT_LEN, 2 * self._num_items):
            self._compact()

    def least_recent(self) -> Item | None:
        """The item with the smallest clock, left in place."""
        log, late = self._log, self._late
        while log and not self._is_live(self._log_clocks[0], log[0]):
            log.popleft()
            self._log_clocks.popleft()
        while late and not self._is_live(late[0][0], late[0][2]):
            heapq.heappop(late)
        if late and (not log or late[0][0] < self._log_clocks[0]):
            return late[0][2]
        return log[0] if log else None

    def check_invariants(self) -> None:
        """Raises AssertionError where items are miscounted, doubled, or stale entries pile up."""
        items = list(self)
        assert len(items) == self._num_items, "the counter of the order of eviction is wrong"
        assert len(set(items)) == len(items), "an item is in the order of eviction twice"
        num_entries = len(self._log) + len(self._late)
        assert num_entries <= max(_MIN_COMPACT_LEN, 2 * self._num_items), "stale entries pile up"
        assert list(self._log_clocks) == sorted(self._log_clocks), "the log is out of order"

    def _is_live(self, clock: float, item: Item) -> bool:
        return item.last_used == clock and self._is_member(item)

    def _compact(self) -> None:
        logged = zip(self._log_clocks, self._log, strict=True)
        live = [(clock, item) for clock, item in logged if self._is_live(clock, item)]
        self._log_clocks = deque(clock for clock, _ in live)
        self._log = deque(item for _, item in live)
        self._late = [entry for entry in self._late if self._is_live(entry[0], entry[2])]
        heapq.heapify(self._late)


class PriorityQueue:
    """Unlocked leaves in two classes: what is pinned goes last."""

    def __init__(self) -> None:
        self.normal: LruQueue[Node] = LruQueue(_is_normal)
        self.pinned: LruQueue[Node] = LruQueue(_is_pinned)

    def __len__(self) -> int:
        return len(self.normal) + len(self.pinned)

    def __iter__(self) -> Iterator[Node]:
        return chain(self.normal, self.pinned)

    def queue_of(self, leaf: Node) -> LruQueue[Node]:
        return self.pinned if Pins.is_pinned(leaf) else self.normal

    def first(self) -> Node | None:
        return self.normal.least_recent() or self.pinned.least_recent()


class EvictionOrder:
    """The order over all leaves, and one more for each owner with a quota over its own."""

    def __init__(self) -> None:
        self.all = PriorityQueue()
        self.of_owner: dict[str, PriorityQueue] = {}

    def add(self, leaf: Node) -> None:
        for queues in self._queues(leaf):
            queues.queue_of(leaf).add(leaf)

    def discard(self, leaf: Node) -> None:
        """The leaf is about to be locked, or to leave the tree."""
        for queues in self._queues(leaf):
            queues.queue_of(leaf).discard()

    def unpin(self, leaf: Node) -> None:
        """The leaf has just lost its last pin: it keeps its place by use, among the others."""
        for queues in self._queues(leaf):
            queues.pinned.discard()
            queues.normal.add(leaf)

    def first(self, owner: str | None = None) -> Node | None:
        """Who goes next of all, or of one owner with a quota."""
        queues = self.all if owner is None else self.of_owner[owner]
        return queues.first()

    def follow(self, owner: str, leaves: Iterable[Node]) -> None:
        """Keeps an order of the owner's own leaves from now on; `leaves` are those in the tree."""
        if owner not in self.of_owner:
            queues = self.of_owner[owner] = PriorityQueue()
            for leaf in sorted(leaves, key=lambda leaf: leaf.last_used):
                queues.queue_of(leaf).add(leaf)

    def unfollow(self, owner: str) -> None:
        self.of_owner.pop(owner, None)

    def _queues(self, leaf: Node) -> Iterator[PriorityQueue]:
        yield self.all
        if self.of_owner and leaf.root.owner in self.of_owner:
            yield self.of_owner[leaf.root.owner]


def _is_normal(node: Node) -> bool:
    return node.is_evictable and not Pins.is_pinned(node)


def _is_pinned(node: Node) -> bool:
    return node.is_evictable and Pins.is_pinned(node)
