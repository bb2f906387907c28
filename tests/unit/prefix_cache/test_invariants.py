"""Each check is shown a tree broken in one way: an integrity check that never fails is none."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from prefix_cache.invariants import check_tree
from prefix_cache.node import Node, Root
from prefix_cache.tree import RadixTree


@dataclass
class Sound:
    """Pages of 2: a locked edge (1 1)(2 2) with page ids 0, 1 and an unlocked (3 3) with 2."""

    tree: RadixTree
    locked: Node


@pytest.fixture
def sound() -> Sound:
    tree = RadixTree(page_size=2)
    locked = tree.insert_pages(b"", None, pages=[(1, 1), (2, 2)], page_ids=[0, 1]).node
    tree.unlock(tree.insert_pages(b"", None, pages=[(3, 3)], page_ids=[2]).node)
    return Sound(tree, locked)


def test_a_sound_tree_passes_and_its_pages_are_returned(sound: Sound) -> None:
    assert check_tree(sound.tree, [sound.locked]) == {0, 1, 2}


def test_a_lock_that_no_lease_holds_is_found(sound: Sound) -> None:
    with pytest.raises(AssertionError, match="lock count"):
        check_tree(sound.tree, [])


def test_a_lease_on_a_node_outside_the_tree_is_found(sound: Sound) -> None:
    with pytest.raises(AssertionError, match="left the tree"):
        check_tree(sound.tree, [sound.locked, Node(None, [(9, 9)], [9])])


def double_a_page(sound: Sound) -> None:
    sound.locked.page_ids[1] = 2


def miscount_pages(sound: Sound) -> None:
    sound.tree.num_pages += 1


def miscount_locked_pages(sound: Sound) -> None:
    sound.tree.num_locked_pages -= 1


def forget_a_leaf(sound: Sound) -> None:
    sound.tree.leaves.discard(sound.tree.leaves.least_recent())


def offer_a_locked_leaf(sound: Sound) -> None:
    sound.tree.leaves.add(sound.locked, 0)


def cut_a_page(sound: Sound) -> None:
    sound.locked.page_tokens[1] = (2,)


def keep_an_empty_root(sound: Sound) -> None:
    sound.tree.roots[b"empty"] = Root(b"empty")


def misfile_a_root(sound: Sound) -> None:
    sound.tree.roots[b"other"] = sound.tree.roots.pop(b"")


def adopt_a_child(sound: Sound) -> None:
    sound.locked.parent = Root(b"")


def keep_a_superseded_leaf(sound: Sound) -> None:
    leaf = sound.tree._add_child(sound.tree.roots[b""], [(3,)], [7])
    sound.tree.leaves.add(leaf, 0)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (double_a_page, "twice"),
        (miscount_pages, "counter of pages"),
        (miscount_locked_pages, "counter of locked"),
        (forget_a_leaf, "order of eviction"),
        (offer_a_locked_leaf, "order of eviction"),
        (cut_a_page, "partial page inside"),
        (keep_an_empty_root, "empty root"),
        (misfile_a_root, "wrong namespace"),
        (adopt_a_child, "another parent"),
        (keep_a_superseded_leaf, "superseded"),
    ],
)
def test_harm_is_found(harm: Callable[[Sound], None], message: str, sound: Sound) -> None:
    harm(sound)
    with pytest.raises(AssertionError, match=message):
        check_tree(sound.tree, [sound.locked])
