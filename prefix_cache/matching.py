"""The longest match of a sequence in one namespace's tree, exact to the token. Changes nothing."""

from collections.abc import Sequence
from dataclasses import dataclass

from prefix_cache.children import around, closest
from prefix_cache.node import PAGE_ID_BYTES, Node, Root, unpack_page_ids
from prefix_cache.packed_tokens import TOKEN_BYTES, TokenQuery


@dataclass(slots=True)
class Match:
    """Where a query's path ends. `tail_node` holds the best partial page at index `tail_index`.

    | token range                    | where                                            |
    | ------------------------------ | ------------------------------------------------ |
    | [0, num_pages * page_size)     | `page_ids`; the last of them is page             |
    |                                | `num_node_pages` - 1 of `node`'s edge            |
    | the `num_tail_tokens` behind   | page `tail_index` of `tail_node`'s edge          |
    """

    node: Node | None = None
    num_node_pages: int = 0
    packed_page_ids: bytes = b""
    tail_node: Node | None = None
    tail_index: int = 0
    num_tail_tokens: int = 0

    @property
    def num_pages(self) -> int:
        return len(self.packed_page_ids) // PAGE_ID_BYTES

    @property
    def page_ids(self) -> list[int]:
        return unpack_page_ids(self.packed_page_ids)


def find_match(
    root: Root | None, token_ids: Sequence[int], *, num_tokens: int, page_size: int
) -> Match:
    """Of the first `num_tokens` tokens. Edges are compared whole, children found by halving."""
    match = Match()
    if root is None:
        return match
    query = TokenQuery(token_ids, num_tokens)
    page_bytes = page_size * TOKEN_BYTES
    node: Node = root
    start, page_ids = 0, []
    while node.children:
        page = query.page_at(start, page_bytes)
        _, child = around(node.children, page)
        if child is None or len(page) < page_bytes or not child.tokens.startswith(page):
            match.tail_node, match.num_tail_tokens = closest(node.children, page)
            break
        edge = child.tokens
        num_equal = page_bytes if len(edge) == page_bytes else query.num_equal_bytes(start, edge)
        match.node, match.num_node_pages = child, num_equal // page_bytes
        if num_equal < len(edge):
            page_ids.append(child.packed_page_ids[: match.num_node_pages * PAGE_ID_BYTES])
            match.num_tail_tokens = num_equal % page_bytes // TOKEN_BYTES
            match.tail_node = child if match.num_tail_tokens else None
            match.tail_index = match.num_node_pages if match.num_tail_tokens else 0
            break
        page_ids.append(child.packed_page_ids)
        start += num_equal
        node = child
    match.packed_page_ids = b"".join(page_ids)
    return match
