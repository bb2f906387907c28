"""Each check is shown a tree broken in one way: an integrity check that never fails is none."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from prefix_cache.expiries import Pin
from prefix_cache.invariants import check_tree
from prefix_cache.node import Node, PartialLeaf, Root, pack_page_ids
from prefix_cache.packed_tokens import pack
from prefix_cache.tree import RadixTree
from tests.unit.prefix_cache.trees import make_tree


@dataclass
class Sound:
    """Pages of 2: a locked edge (1 1)(2 2) with page ids 0, 1 and an unlocked (3 3) with 2."""

    tree: RadixTree
    locked: Node


@pytest.fixture
def sound() -> Sound:
    tree = make_tree(page_size=2)
    locked = tree.insert_pages(b"", None, tokens=pack([1, 1, 2, 2]), page_ids=[0, 1]).node
    tree.unlock(tree.insert_pages(b"", None, tokens=pack([3, 3]), page_ids=[2]).node)
    return Sound(tree, locked)


def edge_of(tokens: list[int], page_ids: list[int]) -> bytes:
    return pack(tokens) + pack_page_ids(page_ids)


def test_a_sound_tree_passes_and_its_pages_are_returned(sound: Sound) -> None:
    assert check_tree(sound.tree, [sound.locked]) == {0, 1, 2}


def test_a_lock_that_no_lease_holds_is_found(sound: Sound) -> None:
    with pytest.raises(AssertionError, match="lock count"):
        check_tree(sound.tree, [])


def test_a_lease_on_a_node_outside_the_tree_is_found(sound: Sound) -> None:
    with pytest.raises(AssertionError, match="left the tree"):
        check_tree(sound.tree, [sound.locked, Node(None, edge_of([9, 9], [9]))])


def double_a_page(sound: Sound) -> None:
    sound.locked.edge = edge_of([1, 1, 2, 2], [0, 2])


def miscount_pages(sound: Sound) -> None:
    sound.tree.num_pages += 1


def miscount_locked_pages(sound: Sound) -> None:
    sound.tree.num_locked_pages -= 1


def forget_a_leaf(sound: Sound) -> None:
    leaf = sound.tree.order.first()
    assert leaf is not None
    sound.tree.order.remove(leaf)


def offer_a_locked_leaf(sound: Sound) -> None:
    sound.tree.order.add(sound.locked)


def cut_a_page(sound: Sound) -> None:
    sound.locked.edge = edge_of([1, 1, 2], [0, 1])


def keep_an_empty_root(sound: Sound) -> None:
    pages = sound.tree.roots[b""].pages
    sound.tree.roots[b"empty"] = Root(b"empty", pages, page_bytes=8)


def misfile_a_root(sound: Sound) -> None:
    sound.tree.roots[b"other"] = sound.tree.roots.pop(b"")


def adopt_a_child(sound: Sound) -> None:
    sound.locked.parent = Root(b"", sound.tree.roots[b""].pages, page_bytes=8)


def keep_a_superseded_leaf(sound: Sound) -> None:
    root = sound.tree.roots[b""]
    leaf = PartialLeaf(root, pack([3]), 7)
    leaf.last_used = 1.0
    root.children = (*list(root.children)[:1], leaf, *list(root.children)[1:])
    sound.tree.order.add(leaf)


def file_children_in_disorder(sound: Sound) -> None:
    root = sound.tree.roots[b""]
    root.children = tuple(reversed(list(root.children)))


def miscount_an_owner(sound: Sound) -> None:
    sound.tree.roots[b""].pages.num_pages += 1


def lose_an_owner(sound: Sound) -> None:
    sound.tree.owners.of("").roots.clear()


def keep_an_idle_owner(sound: Sound) -> None:
    sound.tree.owners.of("nobody")


def exceed_a_quota(sound: Sound) -> None:
    sound.tree.set_quota("", 2)


def use_two_leaves_at_once(sound: Sound) -> None:
    tree = sound.tree
    other = tree.insert_pages(b"", None, tokens=pack([4, 4]), page_ids=[3]).node
    tree.unlock(other)
    tree.order.remove(other)
    first = tree.order.first()
    assert first is not None
    other.last_used = first.last_used
    tree.order.add(other)


def pin(sound: Sound) -> Pin:
    pin = Pin(key="key", until_ns=1, source=None, node=None)
    assert sound.tree.pin(sound.locked, pin, num_pages=1) == 1
    return pin


def miscount_pins(sound: Sound) -> None:
    pin(sound)
    sound.tree.pins.num_pages += 1


def miscount_pins_of_an_owner(sound: Sound) -> None:
    pin(sound)
    sound.tree.roots[b""].pages.num_pinned += 1


def pin_a_node_by_nothing(sound: Sound) -> None:
    pin(sound)
    pages = sound.tree.roots[b""].pages
    pages.pins_of[sound.locked] = set()
    pages.num_pinned += 1
    sound.tree.pins.num_pages += 1


def forget_a_key(sound: Sound) -> None:
    pin(sound)
    sound.tree.roots[b""].pages.pins_by_key.clear()


def exceed_the_share_of_pins(sound: Sound) -> None:
    pin(sound)
    sound.tree.pins._share = 0.0


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (double_a_page, "twice"),
        (miscount_pages, "counter of pages"),
        (miscount_locked_pages, "counter of locked"),
        (forget_a_leaf, "order of eviction"),
        (offer_a_locked_leaf, "order of eviction"),
        (cut_a_page, "does not end with a page"),
        (keep_an_empty_root, "empty root"),
        (misfile_a_root, "wrong namespace"),
        (adopt_a_child, "another parent"),
        (keep_a_superseded_leaf, "superseded"),
        (file_children_in_disorder, "not sorted"),
        (miscount_an_owner, "an owner's pages"),
        (lose_an_owner, "does not know its root"),
        (keep_an_idle_owner, "without pages and quota"),
        (use_two_leaves_at_once, "one time"),
        (exceed_a_quota, "over an owner's quota"),
        (exceed_the_share_of_pins, "more pinned than it may"),
        (miscount_pins, "counter of pinned pages"),
        (miscount_pins_of_an_owner, "an owner's pinned pages"),
        (pin_a_node_by_nothing, "path and its pins"),
        (forget_a_key, "not under its key"),
    ],
)
def test_harm_is_found(harm: Callable[[Sound], None], message: str, sound: Sound) -> None:
    harm(sound)
    with pytest.raises(AssertionError, match=message):
        check_tree(sound.tree, [sound.locked])
