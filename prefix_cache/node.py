"""Nodes of the radix tree. Only the tree changes them."""

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

from prefix_cache.owners import OwnerPages
from prefix_cache.packed_tokens import TOKEN_BYTES

if TYPE_CHECKING:
    from prefix_cache.children import Children


class Node:
    """An edge, which is a run of pages, and what hangs below it.

    `tokens` are those of the whole edge, packed (`prefix_cache.packed_tokens`); every page but the
    one of a partial leaf is full. `num_locks` counts the locks whose path to the root goes through
    this node, `num_hits` the matches. `last_used` is the tree's clock at the last lock or unlock.
    `parent` is None for a root and for what has left the tree.
    """

    __slots__ = (
        "children",
        "last_used",
        "num_hits",
        "num_locks",
        "packed_page_ids",
        "parent",
        "root",
        "tokens",
    )

    root: "Root"

    def __init__(self, parent: "Node | None", tokens: bytes, packed_page_ids: bytes) -> None:
        self.parent = parent
        if parent is not None:
            self.root = parent.root
        self.tokens = tokens
        self.packed_page_ids = packed_page_ids
        self.children: Children[Node] = ()
        self.num_locks = 0
        self.last_used = 0.0
        self.num_hits = 0

    @property
    def num_pages(self) -> int:
        return len(self.packed_page_ids) // PAGE_ID_BYTES

    @property
    def num_tokens(self) -> int:
        return len(self.tokens) // TOKEN_BYTES

    @property
    def is_evictable(self) -> bool:
        """Whether it is an unlocked leaf of the tree."""
        return not self.num_locks and not self.children and self.parent is not None

    @property
    def page_ids(self) -> list[int]:
        return unpack_page_ids(self.packed_page_ids)

    @property
    def used_ns(self) -> int:
        """`last_used` as wall-clock ns, as exact as a float is; 0 = never."""
        return round(self.last_used * 1e9)

    @property
    def pinned_until_ns(self) -> int:
        """When the last pin on it expires; 0 = it has none."""
        pins = self.root.pages.pins_of.get(self, ())
        return max((pin.until_ns for pin in pins), default=0)


class Root(Node):
    """The empty edge at which one namespace starts."""

    __slots__ = ("namespace", "pages")

    def __init__(self, namespace: bytes, pages: OwnerPages) -> None:
        super().__init__(None, b"", b"")
        self.root = self
        self.namespace = namespace
        self.pages = pages

    @property
    def owner(self) -> str:
        return self.pages.owner


def pack_page_ids(page_ids: Sequence[int]) -> bytes:
    return array("I", page_ids).tobytes()


def unpack_page_ids(packed: bytes) -> list[int]:
    return array("I", packed).tolist()


PAGE_ID_BYTES = array("I").itemsize
