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


def find_match(root: Root, token_ids: Sequence[int], num_tokens: int) -> Match:
    """Of the first `num_tokens` tokens. Edges are compared whole, children found by halving."""
    match = Match()
    query = TokenQuery(token_ids, num_tokens)
    page_bytes = root.page_bytes
    node: Node = root
    start, page_ids = 0, []
    while node.children:
        page = query.page_at(start, page_bytes)
        _, child = around(node.children, page)
        if child is None or len(page) < page_bytes or not child.edge.startswith(page):
            match.tail_node, match.num_tail_tokens = closest(node.children, page)
            break
        edge = child.edge
        num_edge_bytes = len(edge) // (page_bytes + PAGE_ID_BYTES) * page_bytes
        num_equal = page_bytes
        if num_edge_bytes > page_bytes:
            num_equal = query.num_equal_bytes(start, edge, num_edge_bytes)
        match.node, match.num_node_pages = child, num_equal // page_bytes
        num_id_bytes = match.num_node_pages * PAGE_ID_BYTES
        page_ids.append(edge[num_edge_bytes : num_edge_bytes + num_id_bytes])
        if num_equal < num_edge_bytes:
            match.num_tail_tokens = num_equal % page_bytes // TOKEN_BYTES
            if match.num_tail_tokens:
                match.tail_node, match.tail_index = child, match.num_node_pages
            break
        start += num_equal
        node = child
    match.packed_page_ids = b"".join(page_ids)
    return match
