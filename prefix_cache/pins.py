"""Pins: paths that are evicted last, until they expire. Owns which nodes are pinned.

Pins are soft: pinned pages are given up like all others once nothing else is left. Those of one
owner are bounded, in pages and in number; over the bound what expires first is no longer pinned.
Called by the tree, which is told the nodes that have lost their last pin.
"""

from collections.abc import Iterator

from prefix_cache.expiries import Expiries, Pin
from prefix_cache.node import Node, Root
from prefix_cache.owners import OwnerPages

# Of one owner: pins with keys of their own may stand at one place, where pages bound nothing.
MAX_PINS = 4096


class Pins:
    """All pins of a tree. `share` of the pool, or of its quota, is what one owner may have pinned.

    | event in the tree      | what becomes of pins                                      |
    | ---------------------- | --------------------------------------------------------- |
    | a pinned edge is split | both parts are pinned                                     |
    | a pinned leaf goes     | its pins end at its parent, or are no more below a root   |
    | it is shortened        | its pins cover what is left                               |
    """

    def __init__(self, *, share: float, num_pool_pages: int) -> None:
        self._share = share
        self._num_pool_pages = num_pool_pages
        self._expiries = Expiries()
        self.num_pages = 0

    @staticmethod
    def is_pinned(node: Node) -> bool:
        return node in node.root.pages.pins_of

    def max_pages(self, pages: OwnerPages) -> int:
        total = self._num_pool_pages if pages.max_pages is None else pages.max_pages
        return int(self._share * min(total, self._num_pool_pages))

    def add(self, pin: Pin) -> list[Node]:
        """Pins the path to the pin's node; returns the nodes that others lose their pin of.

        Pins of the same key that came through other leases end. Without a key one at the same
        node is replaced, and expires no earlier for it. The pin itself may have ended at once,
        where it is the one over the bound that expires first.
        """
        assert pin.node is not None
        pages = pin.node.root.pages
        freed: list[Node] = []
        older = self._replaced_by(pin)
        if not pin.key:
            pin.until_ns = max([pin.until_ns, *(one.until_ns for one in older)])
        self._cover(pages, pin)
        for one in older:
            freed += self._end(one)
        return freed + self.trim(pages)

    def trim(self, pages: OwnerPages) -> list[Node]:
        """Ends what an owner has pinned over its bound, the first to expire first."""
        freed: list[Node] = []
        while pages.num_pinned > self.max_pages(pages) or len(pages.expiries) > MAX_PINS:
            first = pages.expiries.first()
            assert first is not None, "pages are pinned by nobody"
            freed += self._end(first)
        return freed

    def expire(self, now_ns: int) -> list[Node]:
        freed: list[Node] = []
        while (first := self._expiries.first()) is not None and first.until_ns <= now_ns:
            freed += self._end(first)
        return freed

    def split(self, upper: Node, lower: Node) -> None:
        pins_of = upper.root.pages.pins_of
        if lower in pins_of:
            pins_of[upper] = set(pins_of[lower])

    def shortened(self, node: Node, num_pages: int) -> None:
        if self.is_pinned(node):
            self._count(node.root.pages, -num_pages)

    def removed(self, leaf: Node) -> None:
        """The leaf, still with its parent, is about to leave the tree."""
        pages, parent = leaf.root.pages, leaf.parent
        if leaf not in pages.pins_of:
            return
        pins = pages.pins_of.pop(leaf)
        self._count(pages, -leaf.num_pages)
        for pin in pins:
            assert pin.node is leaf, "a pin on a leaf ends elsewhere"
            pin.node = parent
            if isinstance(parent, Root):
                self._forget(pages, pin)

    def check_invariants(self) -> None:
        """Raises AssertionError where the pins of all owners are miscounted."""
        self._expiries.check_invariants()

    def _replaced_by(self, pin: Pin) -> list[Pin]:
        assert pin.node is not None
        pages = pin.node.root.pages
        if pin.key:
            of_key = pages.pins_by_key.get(pin.key, ())
            return [one for one in of_key if one.source is not pin.source]
        here = pages.pins_of.get(pin.node, ())
        return [one for one in here if one.node is pin.node and not one.key]

    def _cover(self, pages: OwnerPages, pin: Pin) -> None:
        for node in _path(pin):
            if node not in pages.pins_of:
                pages.pins_of[node] = set()
                self._count(pages, node.num_pages)
            pages.pins_of[node].add(pin)
        if pin.key:
            pages.pins_by_key.setdefault(pin.key, []).append(pin)
        pages.expiries.add(pin)
        self._expiries.add(pin)

    def _end(self, pin: Pin) -> list[Node]:
        """Takes a pin off its path; returns the nodes that have none left."""
        assert pin.node is not None
        pages = pin.node.root.pages
        freed: list[Node] = []
        for node in _path(pin):
            pages.pins_of[node].remove(pin)
            if not pages.pins_of[node]:
                del pages.pins_of[node]
                self._count(pages, -node.num_pages)
                freed.append(node)
        self._forget(pages, pin)
        return freed

    def _forget(self, pages: OwnerPages, pin: Pin) -> None:
        pin.node = None
        if pin.key:
            pages.pins_by_key[pin.key].remove(pin)
            if not pages.pins_by_key[pin.key]:
                del pages.pins_by_key[pin.key]
        pages.expiries.note_ended()
        self._expiries.note_ended()

    def _count(self, pages: OwnerPages, num_pages: int) -> None:
        pages.num_pinned += num_pages
        self.num_pages += num_pages


def _path(pin: Pin) -> Iterator[Node]:
    step = pin.node
    while step is not None and step.parent is not None:
        yield step
        step = step.parent
