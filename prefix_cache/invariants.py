"""Whole-tree checks, for tests and for an operator who suspects a leak. O(pages), never hot."""

from collections import Counter
from collections.abc import Iterable

from prefix_cache.node import Node, Root
from prefix_cache.tree import RadixTree


def check_tree(tree: RadixTree, lock_holders: Iterable[Node]) -> set[int]:
    """Raises AssertionError where the tree contradicts itself; returns the pages in it.

    `lock_holders` are the nodes that leases lock, one entry for each lock.
    """
    nodes = [node for root in tree.roots.values() for node in _descendants(root)]
    page_ids = [page_id for node in nodes for page_id in node.page_ids]
    _check_roots(tree)
    for node in nodes:
        _check_node(node, tree.page_size)
    _check_locks(nodes, lock_holders)
    _check_leaves(tree, nodes)
    assert tree.num_pages == len(page_ids), "the counter of pages is wrong"
    num_locked_pages = sum(node.num_pages for node in nodes if node.num_locks)
    assert tree.num_locked_pages == num_locked_pages, "the counter of locked pages is wrong"
    assert len(set(page_ids)) == len(page_ids), "a page is in the tree twice"
    return set(page_ids)


def _descendants(root: Node) -> list[Node]:
    found: list[Node] = []
    pending = list(root.children)
    while pending:
        node = pending.pop()
        found.append(node)
        pending.extend(node.children)
    return found


def _check_roots(tree: RadixTree) -> None:
    for namespace, root in tree.roots.items():
        assert isinstance(root, Root)
        assert root.namespace == namespace, "a root is filed under a wrong namespace"
        assert len(root.children), "an empty root was kept"
        _check_children(root)


def _check_node(node: Node, page_size: int) -> None:
    assert node.num_pages == len(node.page_tokens) > 0, "an edge without pages"
    _check_children(node)
    sizes = [len(tokens) for tokens in node.page_tokens]
    if sizes[-1] < page_size:
        assert len(sizes) == 1, "a partial page inside an edge"
        assert sizes[0] > 0, "a page without tokens"
        assert not len(node.children), "a partial page with children"
        assert node.parent is not None
        is_superseded = node.parent.children.is_superseded(node)
        assert node.num_locks or not is_superseded, "an unlocked superseded leaf was kept"
    else:
        assert set(sizes) == {page_size}, "a page that is not full inside an edge"


def _check_children(node: Node) -> None:
    assert all(child.parent is node for child in node.children), "a child has another parent"
    node.children.check_invariants()


def _check_locks(nodes: list[Node], lock_holders: Iterable[Node]) -> None:
    expected: Counter[Node] = Counter()
    for holder in lock_holders:
        step: Node | None = holder
        while step is not None:
            expected[step] += 1
            step = step.parent
    for node in nodes:
        assert node.num_locks == expected.pop(node, 0), "lock count and leases differ"
    assert all(isinstance(node, Root) for node in expected), "a locked node left the tree"


def _check_leaves(tree: RadixTree, nodes: list[Node]) -> None:
    tree.leaves.check_invariants()
    unlocked = {node for node in nodes if not len(node.children) and node.num_locks == 0}
    assert set(tree.leaves) == unlocked, "the order of eviction does not hold the unlocked leaves"
