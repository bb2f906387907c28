"""A node's children in the order of their edges: a tuple of few, a list of more, buckets of many.

Where thousands of children begin alike (a chat template), the one with the longest common prefix
with a query is still next to the query's place in the order: O(log n) comparisons. Only the tree
changes them; a change may exchange the container, so it returns the one to keep.
"""

from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter
from typing import Protocol, TypeVar

from prefix_cache.packed_tokens import TOKEN_BYTES, common_bytes
from prefix_cache.sorted_buckets import SortedBuckets

# Most nodes have none or two: a tuple of two is half as large as a list that may grow.
MAX_TUPLE = 8
MAX_LIST = 512


class HasEdge(Protocol):
    """What is sorted. An edge begins with its tokens; no two begin with the same page."""

    edge: bytes


E = TypeVar("E", bound=HasEdge)
Children = tuple[E, ...] | list[E] | SortedBuckets[E]
_edge_of = attrgetter("edge")


def around(children: Children[E], key: bytes) -> tuple[E | None, E | None]:
    """The last child before the key in the order, and the first that is not before it."""
    if isinstance(children, SortedBuckets):
        return children.around(key)
    index = bisect_left(children, key, key=_edge_of)
    before = children[index - 1] if index else None
    return before, children[index] if index < len(children) else None


def every(children: Children[E], stride: int) -> Sequence[E]:
    """One in about `stride` children, in order; the others are not touched."""
    return children.every(stride) if isinstance(children, SortedBuckets) else children[::stride]


def child_with(children: Children[E], tokens: bytes) -> E | None:
    """The child whose edge begins with these tokens, at most a page; the first of several."""
    _, after = around(children, tokens)
    return after if after is not None and after.edge.startswith(tokens) else None


def closest(children: Children[E], tokens: bytes) -> tuple[E | None, int]:
    """A child whose edge shares most tokens with `tokens`, at most a page, and how many."""
    best, best_bytes = None, 0
    for child in around(children, tokens):
        if child is not None:
            num_bytes = common_bytes(child.edge[: len(tokens)], tokens)
            if num_bytes > best_bytes:
                best, best_bytes = child, num_bytes
    return best, best_bytes // TOKEN_BYTES


def is_superseded(children: Children[E], child: E) -> bool:
    """Whether the edge of another child starts with all of this partial one's, and goes on."""
    _, after = around(children, child.edge + b"\0")
    return after is not None and after.edge.startswith(child.edge)


def longest_prefix(children: Children[E], page: bytes) -> E | None:
    """The child just before `page` in the order, if its whole edge is a prefix of it."""
    before, _ = around(children, page)
    return before if before is not None and page.startswith(before.edge) else None


def with_child(children: Children[E], child: E) -> Children[E]:
    if isinstance(children, SortedBuckets):
        children.add(child)
        return children
    index = bisect_left(children, child.edge, key=_edge_of)
    if isinstance(children, tuple):
        longer = (*children[:index], child, *children[index:])
        return longer if len(longer) <= MAX_TUPLE else list(longer)
    children.insert(index, child)
    return children if len(children) <= MAX_LIST else SortedBuckets(_edge_of, children)


def without_child(children: Children[E], child: E) -> Children[E]:
    if isinstance(children, SortedBuckets):
        children.remove(child)
        return list(children) if len(children) <= MAX_LIST // 2 else children
    index = _index_of(children, child)
    if isinstance(children, tuple):
        return children[:index] + children[index + 1 :]
    del children[index]
    return tuple(children) if len(children) <= MAX_TUPLE // 2 else children


def with_replaced(children: Children[E], old: E, new: E) -> Children[E]:
    """`new`, which begins with the same page, in the place of `old`."""
    if isinstance(children, SortedBuckets):
        children.replace(old, new)
        return children
    index = _index_of(children, old)
    if isinstance(children, tuple):
        return (*children[:index], new, *children[index + 1 :])
    children[index] = new
    return children


def change_edge(children: Children[E], child: E, edge: bytes) -> None:
    """Gives a child an edge that is longer or shorter, and begins with the same page."""
    bucket = children.bucket_of(child) if isinstance(children, SortedBuckets) else None
    child.edge = edge
    if isinstance(children, SortedBuckets) and bucket is not None:
        children.note_changed(bucket)


def _index_of(children: tuple[E, ...] | list[E], child: E) -> int:
    if children[0] is child:
        return 0
    index = bisect_left(children, child.edge, key=_edge_of)
    assert children[index] is child, "a child is not where its edge says"
    return index
