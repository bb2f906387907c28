"""Whole-tree checks, for tests and for an operator who suspects a leak. O(pages), never hot."""

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from prefix_cache.children import is_superseded
from prefix_cache.node import PAGE_ID_BYTES, Node, PartialLeaf, Root
from prefix_cache.packed_tokens import TOKEN_BYTES
from prefix_cache.sorted_buckets import SortedBuckets
from prefix_cache.tree import RadixTree, descendants

if TYPE_CHECKING:
    from prefix_cache.expiries import Pin


def check_tree(tree: RadixTree, lock_holders: Iterable[Node]) -> set[int]:
    """Raises AssertionError where the tree contradicts itself; returns the pages in it.

    `lock_holders` are the nodes that leases lock, one entry for each lock.
    """
    nodes = [node for root in tree.roots.values() for node in descendants(root)]
    page_ids = [page_id for node in nodes for page_id in node.page_ids]
    _check_roots(tree)
    for node in nodes:
        _check_node(node, tree.page_size * TOKEN_BYTES)
    _check_locks(nodes, lock_holders)
    _check_order(tree, nodes)
    _check_owners(tree)
    _check_pins(tree, nodes)
    assert tree.num_pages == len(page_ids), "the counter of pages is wrong"
    num_locked_pages = sum(node.num_pages for node in nodes if node.num_locks)
    assert tree.num_locked_pages == num_locked_pages, "the counter of locked pages is wrong"
    assert len(set(page_ids)) == len(page_ids), "a page is in the tree twice"
    return set(page_ids)


def _check_roots(tree: RadixTree) -> None:
    for namespace, root in tree.roots.items():
        assert isinstance(root, Root)
        assert root.namespace == namespace, "a root is filed under a wrong namespace"
        assert root.root is root
        assert root.children, "an empty root was kept"
        assert tree.owners.find(root.owner) is root.pages, "a root has a strange owner"
        assert root.pages.roots.get(namespace) is root, "an owner does not know its root"
        _check_children(root, tree.page_size * TOKEN_BYTES)


def _check_node(node: Node, page_bytes: int) -> None:
    assert node.parent is not None
    assert node.root is node.parent.root, "a node has another root than its parent"
    _check_children(node, page_bytes)
    if isinstance(node, PartialLeaf):
        assert 0 < len(node.edge) < page_bytes, "a partial page that is full or empty"
        assert not node.children, "a partial page with children"
        superseded = is_superseded(node.parent.children, node)
        assert node.num_locks or not superseded, "an unlocked superseded leaf was kept"
    else:
        num_bytes = page_bytes + PAGE_ID_BYTES
        assert len(node.edge) // num_bytes, "an edge without pages"
        assert len(node.edge) % num_bytes == 0, "an edge that does not end with a page"


def _check_children(node: Node, page_bytes: int) -> None:
    children = list(node.children)
    assert all(child.parent is node for child in children), "a child has another parent"
    assert len(node.children) == len(children), "the counter of children is wrong"
    if isinstance(node.children, SortedBuckets):
        node.children.check_invariants()
    assert children or node.children == (), "an empty container of children was kept"
    first_pages = [child.edge[:page_bytes] for child in children]
    assert first_pages == sorted(set(first_pages)), "children are not sorted, or not distinct"


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


def _check_order(tree: RadixTree, nodes: list[Node]) -> None:
    unlocked = {node for node in nodes if not node.children and node.num_locks == 0}
    clocks = {node.last_used for node in unlocked}
    assert len(clocks) == len(unlocked), "two leaves were last used at one time"
    pinned = {node for node in unlocked if tree.pins.is_pinned(node)}
    for owner, queues in [(None, tree.order.all), *tree.order.of_owner.items()]:
        own = {node for node in unlocked if owner in (None, node.root.owner)}
        for queue, expected in ((queues.normal, own - pinned), (queues.pinned, own & pinned)):
            queue.check_invariants()
            assert set(queue) == expected, "the order of eviction does not hold the right leaves"


def _check_owners(tree: RadixTree) -> None:
    for pages in tree.owners:
        nodes = [node for root in pages.roots.values() for node in descendants(root)]
        num_pages = sum(node.num_pages for node in nodes)
        assert pages.num_pages == num_pages, "the counter of an owner's pages is wrong"
        assert all(tree.roots.get(name) is root for name, root in pages.roots.items())
        has_quota = pages.max_pages is not None
        assert pages.roots or has_quota, "an owner without pages and quota was kept"
        assert has_quota == (pages.owner in tree.order.of_owner), "an order without a quota"
        idle = sum(node.num_pages for node in nodes if node.num_locks == 0)
        assert not idle or not pages.num_over_quota, "idle pages over an owner's quota"


def _check_pins(tree: RadixTree, nodes: list[Node]) -> None:
    covering: dict[Node, set[Pin]] = {}
    num_pinned = 0
    for pages in tree.owners:
        pages.expiries.check_invariants()
        for pin in pages.expiries:
            step = pin.node
            while step is not None and step.parent is not None:
                covering.setdefault(step, set()).add(pin)
                step = step.parent
        num_own = sum(node.num_pages for node in pages.pins_of)
        assert pages.num_pinned == num_own, "the counter of an owner's pinned pages is wrong"
        assert num_own <= tree.pins.max_pages(pages), "an owner has more pinned than it may"
        by_key = {pin for pins in pages.pins_by_key.values() for pin in pins}
        assert by_key == {pin for pin in pages.expiries if pin.key}, "a pin is not under its key"
        num_pinned += num_own
    pinned = {node: node.root.pages.pins_of[node] for node in nodes if tree.pins.is_pinned(node)}
    assert pinned == covering, "a path and its pins differ"
    assert tree.pins.num_pages == num_pinned, "the counter of pinned pages is wrong"
    tree.pins.check_invariants()
