"""An edge: packed tokens and page ids in one, and what is read from it."""

from prefix_cache.node import Node, PartialLeaf, Root, pack_page_ids
from prefix_cache.owners import OwnerPages
from prefix_cache.packed_tokens import pack, unpack


def make_root() -> Root:
    return Root(b"namespace", OwnerPages("ada"), page_bytes=8)


def test_an_edge_has_its_tokens_and_its_pages() -> None:
    root = make_root()
    node = Node(root, pack([1, 2, 3, 4]) + pack_page_ids([70, 300]))
    assert unpack(node.tokens) == [1, 2, 3, 4]
    assert (node.page_ids, node.num_pages, node.num_tokens) == ([70, 300], 2, 4)
    assert (node.root, node.root.owner) == (root, "ada")


def test_an_edge_is_cut_at_its_pages() -> None:
    node = Node(make_root(), pack([1, 2, 3, 4, 5, 6]) + pack_page_ids([7, 8, 9]))
    assert node.cut(0, 1) == pack([1, 2]) + pack_page_ids([7])
    assert node.cut(1, 3) == pack([3, 4, 5, 6]) + pack_page_ids([8, 9])
    assert node.cut(0, 3) == node.edge


def test_a_partial_leaf_is_one_page_of_fewer_tokens() -> None:
    leaf = PartialLeaf(make_root(), pack([5]), 9)
    assert unpack(leaf.tokens) == [5]
    assert (leaf.page_ids, leaf.num_pages, leaf.num_tokens) == ([9], 1, 1)
    assert unpack(leaf.packed_page_ids) != [5]


def test_a_root_is_an_empty_edge() -> None:
    root = make_root()
    assert (root.page_ids, root.num_pages, root.tokens) == ([], 0, b"")
    assert not root.is_evictable


def test_only_an_unlocked_leaf_can_be_evicted() -> None:
    root = make_root()
    edge = pack([1, 2]) + pack_page_ids([7])
    leaf, locked, inner, gone = (Node(root, edge) for _ in range(4))
    locked.num_locks = 1
    inner.children = (Node(inner, edge),)
    gone.parent = None
    assert [node.is_evictable for node in (leaf, locked, inner, gone)] == [True] + 3 * [False]
