"""The order of eviction: what is pinned goes last, then by use; owners with a quota have their own.

Pages of 2 tokens: leaf n holds tokens (n n) in page n and was used n-th.
"""

import pytest

from prefix_cache.eviction import EvictionOrder
from prefix_cache.expiries import Pin
from prefix_cache.node import Node
from prefix_cache.packed_tokens import pack
from prefix_cache.tree import RadixTree
from tests.unit.prefix_cache.counting import CountingBytes
from tests.unit.prefix_cache.trees import make_tree


def add_leaf(
    tree: RadixTree, number: int, *, owner: str = "ada", pinned: bool = False, until_ns: int = 2**63
) -> Node:
    node = tree.insert_pages(
        owner.encode(), None, tokens=pack([number, number]), page_ids=[number], owner=owner
    ).node
    if pinned:
        tree.pin(node, Pin(key="", until_ns=until_ns, source=None, node=None), num_pages=1)
    tree.unlock(node)
    return node


def use(tree: RadixTree, number: int, *, owner: str = "ada") -> None:
    node, _ = tree.lock_match(tree.match(owner.encode(), [number, number], 2), with_tail=False)
    assert node is not None
    tree.unlock(node)


def drain(tree: RadixTree, owner: str | None = None) -> list[int]:
    found = []
    while (leaf := tree.order.first(owner)) is not None:
        found += leaf.page_ids
        tree.order.remove(leaf)
    return found


def test_what_was_used_longest_ago_goes_first() -> None:
    tree = make_tree(page_size=2)
    for number in range(6):
        add_leaf(tree, number)
    use(tree, 0)
    use(tree, 3)
    assert drain(tree) == [1, 2, 4, 5, 0, 3]


def test_what_is_pinned_goes_last_and_by_use_too() -> None:
    tree = make_tree(page_size=2)
    for number in range(6):
        add_leaf(tree, number, pinned=number in (0, 1, 4))
    use(tree, 0)
    assert drain(tree) == [2, 3, 5, 1, 4, 0]


def test_what_has_lost_its_pin_is_back_at_the_place_of_its_last_use() -> None:
    tree = make_tree(page_size=2)
    for number in range(4):
        add_leaf(tree, number, pinned=number in (1, 2), until_ns=1)
    tree.expire_pins()
    assert drain(tree) == [0, 1, 2, 3]


def test_an_inner_node_that_becomes_a_leaf_goes_by_its_own_last_use() -> None:
    tree = make_tree(page_size=2)
    edge = tree.insert_pages(b"ada", None, tokens=pack([1, 1, 2, 2]), page_ids=[1, 2]).node
    tree.unlock(edge)
    add_leaf(tree, 9)
    use(tree, 1)
    add_leaf(tree, 8)
    assert tree.evict(4) == [2, 9, 1, 8]


def test_an_owner_with_a_quota_has_an_order_of_its_own() -> None:
    tree = make_tree(page_size=2)
    for number in range(3):
        add_leaf(tree, number, pinned=number == 1)
    add_leaf(tree, 3, owner="bob")
    tree.set_quota("ada", 10)
    add_leaf(tree, 4)
    use(tree, 0)
    assert [page for leaf in tree.order.of_owner["ada"] for page in leaf.page_ids] == [2, 4, 0, 1]
    assert tree.evict(1) == [2]
    first = tree.order.first("ada")
    assert first is not None
    assert first.page_ids == [4]


def test_an_owner_without_a_quota_has_none() -> None:
    tree = make_tree(page_size=2)
    tree.set_quota("ada", 1)
    tree.set_quota("ada", None)
    assert not tree.order.of_owner
    with pytest.raises(KeyError):
        tree.order.first("ada")


def test_an_empty_order_has_no_first_leaf() -> None:
    order = EvictionOrder()
    assert order.first() is None


def test_work_per_eviction_does_not_grow_with_the_leaves() -> None:
    """Of leaves that begin alike, the parent finds the one that goes by halving."""
    num_comparisons = {}
    for num_leaves in (100, 3000):
        tree = make_tree(page_size=2)
        for number in range(num_leaves):
            node = add_leaf(tree, 10_000 + number)
            node.edge = CountingBytes(node.edge)
        CountingBytes.num_comparisons = 0
        tree.evict(50)
        num_comparisons[num_leaves] = CountingBytes.num_comparisons
    assert num_comparisons[3000] <= num_comparisons[100] + 50 * 7
