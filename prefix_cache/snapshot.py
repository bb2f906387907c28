"""The tree as data: its largest edges and its hottest prefixes. Changes nothing.

One walk of bounded length, as it runs between two steps: the edges that were used last come first,
of very many siblings an even sample. What is not looked at is counted as far as it was seen.
"""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice, takewhile

from prefix_cache.children import every
from prefix_cache.node import Node, Root
from prefix_cache.packed_tokens import TOKEN_BYTES, unpack

# Some 2 us each (Xeon at 2.1 GHz).
MAX_WALKED = 1000
MAX_ROOTS = 500

# Prefixes that are compared for which are the hottest: those that saved most, taken alone.
MAX_CANDIDATES = 200

MAX_EDGE_IDS = 16
MAX_FIRST_IDS = 64
MAX_LAST_IDS = 32


@dataclass(eq=False, slots=True)
class Edge:
    """A node of the tree as the walk met it: tokens [start, end) of all sequences through it."""

    id: int
    node: Node
    parent: "Edge | None"
    start: int = field(init=False)
    end: int = field(init=False)

    def __post_init__(self) -> None:
        self.start = 0 if self.parent is None else self.parent.end
        self.end = self.start + self.node.num_tokens

    @property
    def num_tokens(self) -> int:
        return self.end - self.start

    def first_ids(self) -> list[int]:
        """The edge's own first few tokens."""
        return unpack(self.node.tokens[: MAX_EDGE_IDS * TOKEN_BYTES])

    def path(self) -> Iterator["Edge"]:
        """The edge, and all above it on the way to the root."""
        step: Edge | None = self
        while step is not None:
            yield step
            step = step.parent

    def prefix_ends(self) -> tuple[list[int], list[int]]:
        """Of all tokens up to the edge's end the first few and the last few; all of them are first
        ones where there are not more."""
        path = list(self.path())
        first = _joined((edge.node.tokens for edge in reversed(path)), MAX_FIRST_IDS)
        num_last = min(MAX_LAST_IDS, self.end - len(first) // TOKEN_BYTES)
        last = b""
        for edge in path:
            if len(last) >= num_last * TOKEN_BYTES:
                break
            last = edge.node.tokens + last
        return unpack(first), unpack(last[len(last) - num_last * TOKEN_BYTES :])


@dataclass(frozen=True, slots=True)
class TreeSnapshot:
    """`edges` in an order in which each comes after its parent; `hottest` first."""

    edges: list[Edge] = field(default_factory=list)
    hottest: list[Edge] = field(default_factory=list)
    num_left_out: int = 0


def snapshot(roots: Iterable[Root], *, max_edges: int, num_hottest: int) -> TreeSnapshot:
    """Of the edges below the roots the largest, each with all above it, at most `max_edges`; and
    the ends of the prefixes that saved most: requests that found them times tokens."""
    walked, num_seen = _walk(roots)
    largest = _largest(walked, max_edges)
    return TreeSnapshot(largest, _hottest(walked, num_hottest), num_seen - len(largest))


def _walk(roots: Iterable[Root]) -> tuple[list[Edge], int]:
    """The last used edges, each after its parent, and how many edges were seen at all."""
    walked: list[Edge] = []
    heap: list[tuple[float, int, Node, Edge | None]] = []
    num_seen = num_pushed = 0
    above: list[tuple[Node, Edge | None]] = [(root, None) for root in islice(roots, MAX_ROOTS)]
    while above or heap:
        if above:
            node, edge = above.pop()
        else:
            _, _, node, parent = heapq.heappop(heap)
            edge = Edge(len(walked) + 1, node, parent)
            walked.append(edge)
        if not node.children:
            continue
        num_seen += len(node.children)
        for child in _sampled(node, MAX_WALKED - num_pushed):
            heapq.heappush(heap, (-child.last_used, num_pushed, child, edge))
            num_pushed += 1
    return walked, num_seen


def _sampled(node: Node, num_left: int) -> Iterable[Node]:
    """Of more children than half of what may be looked at yet an even sample, so that the other
    half is left for what hangs elsewhere."""
    stride = -(-len(node.children) // max(1, num_left // 2))
    return islice(every(node.children, stride), num_left)


def _largest(walked: list[Edge], max_edges: int) -> list[Edge]:
    chosen: set[int] = set()
    for edge in sorted(walked, key=lambda edge: edge.num_tokens, reverse=True):
        num_left = max_edges - len(chosen)
        if num_left <= 0:
            break
        # Where an edge is chosen, so is all above it.
        missing = takewhile(lambda step: step.id not in chosen, edge.path())
        new_ids = [step.id for step in islice(missing, num_left + 1)]
        if len(new_ids) <= num_left:
            chosen.update(new_ids)
    return [edge for edge in walked if edge.id in chosen]


def _hottest(walked: list[Edge], num_hottest: int) -> list[Edge]:
    """Greedily by what each adds to those chosen before it: tokens that a prefix shares with
    another one count once, for the one that saved more with them."""
    chosen: list[Edge] = []
    covered: set[int] = set()
    worths = ((-edge.node.num_hits * edge.end, edge.id, edge) for edge in walked)
    heap = heapq.nsmallest(max(MAX_CANDIDATES, num_hottest), worths)
    while heap and len(chosen) < num_hottest:
        worth, _, edge = heapq.heappop(heap)
        above = next((step.end for step in edge.path() if step.id in covered), 0)
        added = -edge.node.num_hits * (edge.end - above)
        if added == 0:
            continue
        if added > worth:
            heapq.heappush(heap, (added, edge.id, edge))
            continue
        chosen.append(edge)
        covered.update(step.id for step in edge.path())
    return chosen


def _joined(parts: Iterable[bytes], max_ids: int) -> bytes:
    joined = b""
    for part in parts:
        if len(joined) >= max_ids * TOKEN_BYTES:
            break
        joined += part
    return joined[: max_ids * TOKEN_BYTES]
