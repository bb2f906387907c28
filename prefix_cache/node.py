"""Nodes of the radix tree. Only the tree changes them."""

import sys
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

from prefix_cache.owners import OwnerPages
from prefix_cache.packed_tokens import TOKEN_BYTES

if TYPE_CHECKING:
    from prefix_cache.children import Children

PAGE_ID_BYTES = array("I").itemsize


class Node:
    """An edge, which is a run of full pages, and what hangs below it.

    | bytes of `edge`                        | what                                        |
    | -------------------------------------- | ------------------------------------------- |
    | [0, num_pages * page_size * 4)         | the tokens (`prefix_cache.packed_tokens`)   |
    | [those, len)                           | the page ids, 4 bytes each                  |

    `num_locks` counts the locks whose path to the root goes through this node, `num_hits` the
    matches. `last_used` is the tree's clock at the last lock or unlock. `parent` is None for a
    root and for what has left the tree.
    """

    __slots__ = ("children", "edge", "last_used", "num_hits", "num_locks", "parent", "root")

    root: "Root"

    def __init__(self, parent: "Node | None", edge: bytes) -> None:
        self.parent = parent
        if parent is not None:
            self.root = parent.root
        self.edge = edge
        self.children: Children[Node] = ()
        self.num_locks = 0
        self.last_used = 0.0
        self.num_hits = 0

    @property
    def num_pages(self) -> int:
        return len(self.edge) // (self.root.page_bytes + PAGE_ID_BYTES)

    @property
    def tokens(self) -> bytes:
        """All tokens of the edge, packed."""
        return self.edge[: self.num_pages * self.root.page_bytes]

    @property
    def packed_page_ids(self) -> bytes:
        return self.edge[self.num_pages * self.root.page_bytes :]

    @property
    def num_tokens(self) -> int:
        return self.num_pages * self.root.page_bytes // TOKEN_BYTES

    @property
    def page_ids(self) -> list[int]:
        page_bytes = self.root.page_bytes
        num_pages = len(self.edge) // (page_bytes + PAGE_ID_BYTES)
        return array("I", self.edge[num_pages * page_bytes :]).tolist()

    @property
    def last_page(self) -> int | None:
        """The page that a full edge ends with; None for a root."""
        if not self.edge:
            return None
        return int.from_bytes(self.edge[-PAGE_ID_BYTES:], sys.byteorder)

    @property
    def is_evictable(self) -> bool:
        """Whether it is an unlocked leaf of the tree."""
        return not self.num_locks and not self.children and self.parent is not None

    @property
    def used_ns(self) -> int:
        """`last_used` as wall-clock ns, as exact as a float is; 0 = never."""
        return round(self.last_used * 1e9)

    @property
    def pinned_until_ns(self) -> int:
        """When the last pin on it expires; 0 = it has none."""
        pins = self.root.pages.pins_of.get(self, ())
        return max((pin.until_ns for pin in pins), default=0)

    def cut(self, start: int, end: int) -> bytes:
        """The edge of its pages [start, end) alone."""
        tokens, page_ids = self.tokens, self.packed_page_ids
        page_bytes = self.root.page_bytes
        return (
            tokens[start * page_bytes : end * page_bytes]
            + page_ids[start * PAGE_ID_BYTES : end * PAGE_ID_BYTES]
        )


class PartialLeaf(Node):
    """One page that is not full. Its edge is tokens only, so that it sorts before what goes on."""

    __slots__ = ("page_id",)

    def __init__(self, parent: Node, tokens: bytes, page_id: int) -> None:
        super().__init__(parent, tokens)
        self.page_id = page_id

    @property
    def page_ids(self) -> list[int]:
        return [self.page_id]

    @property
    def num_pages(self) -> int:
        return 1

    @property
    def tokens(self) -> bytes:
        return self.edge

    @property
    def num_tokens(self) -> int:
        return len(self.edge) // TOKEN_BYTES

    @property
    def packed_page_ids(self) -> bytes:
        return pack_page_ids([self.page_id])


class Root(Node):
    """The empty edge at which one namespace starts."""

    __slots__ = ("namespace", "page_bytes", "pages")

    def __init__(self, namespace: bytes, pages: OwnerPages, *, page_bytes: int) -> None:
        super().__init__(None, b"")
        self.root = self
        self.namespace = namespace
        self.pages = pages
        self.page_bytes = page_bytes

    @property
    def owner(self) -> str:
        return self.pages.owner


def pack_page_ids(page_ids: Sequence[int]) -> bytes:
    return array("I", page_ids).tobytes()


def unpack_page_ids(packed: bytes) -> list[int]:
    return array("I", packed).tolist()
