"""What pages hold, in miniature: each slot a digest of its namespace and all tokens up to its own.

As real KV does, a slot depends on everything before it: a page in a wrong place, of another
namespace, half written or given up and written anew has other bytes than it should.
"""

import functools
import hashlib
from collections.abc import Iterator, Sequence

from prefix_cache import PrefixCache
from prefix_cache.node import Node
from prefix_cache.packed_tokens import pack, unpack

SLOT_BYTES = 8

Prefix = tuple[int, ...]


@functools.lru_cache(maxsize=1 << 16)
def slot_of(namespace: bytes, prefix: Prefix) -> bytes:
    """The slot of the last token of the prefix."""
    content = len(namespace).to_bytes(4) + namespace + pack(prefix)
    return hashlib.blake2b(content, digest_size=SLOT_BYTES).digest()


def page_of(namespace: bytes, prefix: Prefix, *, page_size: int) -> bytes:
    """The slots of the page in which the prefix ends, as far as it fills it."""
    start = (len(prefix) - 1) // page_size * page_size
    ends = range(start + 1, len(prefix) + 1)
    return b"".join(slot_of(namespace, prefix[:end]) for end in ends)


class PageMemory:
    """The device's pages. What is free still holds what was written last."""

    def __init__(self, num_pages: int, page_size: int) -> None:
        self._page_size = page_size
        self._pages = [bytearray(b"\xee" * SLOT_BYTES * page_size) for _ in range(num_pages)]

    def read(self, page_id: int, num_slots: int | None = None) -> bytes:
        count = self._page_size if num_slots is None else num_slots
        return bytes(self._pages[page_id][: count * SLOT_BYTES])

    def write(self, page_id: int, content: bytes | memoryview, *, first_slot: int = 0) -> None:
        start = first_slot * SLOT_BYTES
        self._pages[page_id][start : start + len(content)] = content


def cached_pages(cache: PrefixCache) -> Iterator[tuple[bytes, Prefix, int]]:
    """Namespace, tokens up to its end, and number of every page in the tree."""
    for namespace, root in cache.tree.roots.items():
        for child in root.children:
            yield from _pages_below(child, (), namespace=namespace, page_size=cache.page_size)


def _pages_below(
    node: Node, before: Sequence[int], *, namespace: bytes, page_size: int
) -> Iterator[tuple[bytes, Prefix, int]]:
    tokens = (*before, *unpack(node.tokens))
    for index, page_id in enumerate(node.page_ids, start=1):
        yield namespace, tokens[: len(before) + index * page_size], page_id
    for child in node.children:
        yield from _pages_below(child, tokens, namespace=namespace, page_size=page_size)
