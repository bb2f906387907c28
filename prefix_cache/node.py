"""Nodes of the radix tree and the sorted index of a node's children.

Only the tree changes them. A node's edge is a run of pages; every page but the one of a partial
leaf is full.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterator

PageTokens = tuple[int, ...]


class Node:
    """An edge and what hangs below it.

    `page_tokens[i]` are the tokens in page `page_ids[i]`. `num_locks` counts the locks whose path
    to the root goes through this node. `last_used` is the tree's clock at the last lock or unlock.
    """

    __slots__ = (
        "children",
        "last_used",
        "num_hits",
        "num_locks",
        "page_ids",
        "page_tokens",
        "parent",
        "pinned_until_ns",
        "used_ns",
    )

    def __init__(self, parent: "Node | None", pages: list[PageTokens], page_ids: list[int]) -> None:
        self.parent = parent
        self.page_tokens = pages
        self.page_ids = page_ids
        self.children = Children()
        self.num_locks = 0
        self.last_used = 0
        self.num_hits = 0
        self.used_ns = 0
        self.pinned_until_ns = 0

    @property
    def num_pages(self) -> int:
        return len(self.page_ids)

    @property
    def tokens(self) -> bytes:
        """All tokens of the edge, packed."""
        return b"".join(struct.pack(f">{len(page)}I", *page) for page in self.page_tokens)

    @property
    def num_tokens(self) -> int:
        return sum(map(len, self.page_tokens))

    @property
    def key(self) -> PageTokens:
        """The tokens of the first page, under which the parent finds this node."""
        return self.page_tokens[0]


class Root(Node):
    """The empty edge at which one namespace starts."""

    __slots__ = ("namespace", "owner")

    def __init__(self, namespace: bytes, owner: str = "") -> None:
        super().__init__(None, [], [])
        self.namespace = namespace
        self.owner = owner


class Children:
    """Children by the tokens of their first page, in sorted order.

    Where thousands of children begin alike (a chat template), the one with the longest common
    prefix with a query is still next to the query's place in the order: O(log n) comparisons.
    """

    __slots__ = ("_keys", "_nodes")

    def __init__(self) -> None:
        self._keys: list[PageTokens] = []
        self._nodes: list[Node] = []

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes)

    def get(self, key: PageTokens) -> Node | None:
        """The child whose first page is exactly `key`."""
        index = bisect_left(self._keys, key)
        return self._nodes[index] if self._keys[index : index + 1] == [key] else None

    def closest(self, tokens: PageTokens) -> tuple[Node | None, int]:
        """A child whose first page shares most tokens with `tokens`, and how many it shares."""
        index = bisect_left(self._keys, tokens)
        best: Node | None = None
        best_len = 0
        for neighbour in range(max(index - 1, 0), min(index + 1, len(self._keys))):
            common_len = common_prefix_len(self._keys[neighbour], tokens)
            if common_len > best_len:
                best, best_len = self._nodes[neighbour], common_len
        return best, best_len

    def has_extension(self, tokens: PageTokens) -> bool:
        """Whether a child's first page starts with `tokens`, or is equal to them."""
        index = bisect_left(self._keys, tokens)
        return index < len(self._keys) and self._keys[index][: len(tokens)] == tokens

    def is_superseded(self, node: Node) -> bool:
        """Whether another child holds all tokens of this child's first page, and more."""
        index = bisect_left(self._keys, node.key) + 1
        return index < len(self._keys) and self._keys[index][: len(node.key)] == node.key

    def longest_prefix(self, tokens: PageTokens) -> Node | None:
        """The child just before `tokens` in the order, if its first page is a prefix of them."""
        index = bisect_left(self._keys, tokens) - 1
        if index < 0 or tokens[: len(self._keys[index])] != self._keys[index]:
            return None
        return self._nodes[index]

    def add(self, node: Node) -> None:
        index = bisect_left(self._keys, node.key)
        assert self._keys[index : index + 1] != [node.key], "two children with one first page"
        self._keys.insert(index, node.key)
        self._nodes.insert(index, node)

    def remove(self, node: Node) -> None:
        index = self._index_of(node)
        del self._keys[index]
        del self._nodes[index]

    def replace(self, old: Node, new: Node) -> None:
        """Puts `new`, which has the same first page, into the place of `old`."""
        self._nodes[self._index_of(old)] = new

    def check_invariants(self) -> None:
        """Raises AssertionError where the order is broken or a key is not its child's."""
        assert self._keys == sorted(set(self._keys)), "children are not sorted, or not distinct"
        assert self._keys == [node.key for node in self._nodes], (
            "a child is filed under a wrong key"
        )

    def _index_of(self, node: Node) -> int:
        index = bisect_left(self._keys, node.key)
        assert self._nodes[index] is node
        return index


def common_prefix_len(left: PageTokens, right: PageTokens) -> int:
    for index, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return index
    return min(len(left), len(right))
