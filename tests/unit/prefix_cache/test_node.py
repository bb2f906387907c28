"""Children in sorted order: the closest sibling is found without looking at the others."""

from itertools import product

import pytest

from prefix_cache.node import Children, Node, PageTokens, common_prefix_len
from tests.unit.prefix_cache.counting import CountingInt, counting


def children_of(*keys: PageTokens) -> Children:
    children = Children()
    for index, key in enumerate(keys):
        children.add(Node(None, [key], [index]))
    return children


def test_common_prefix_len_stops_at_the_first_difference_or_at_the_shorter_end() -> None:
    assert common_prefix_len((1, 2, 3), (1, 2, 4)) == 2
    assert common_prefix_len((1, 2), (1, 2, 4)) == 2
    assert common_prefix_len((), (1,)) == common_prefix_len((2,), (1,)) == 0


def test_get_finds_only_the_exact_page() -> None:
    children = children_of((1, 2, 3, 4), (1, 2), (5, 6, 7, 8))
    found = children.get((1, 2, 3, 4))
    assert found is not None
    assert found.page_ids == [0]
    assert children.get((1, 2, 3)) is None
    assert children.get((9, 9, 9, 9)) is None


def test_children_are_iterated_in_sorted_order() -> None:
    children = children_of((3, 0), (1, 0), (2, 0), (1,))
    assert [node.key for node in children] == [(1,), (1, 0), (2, 0), (3, 0)]
    assert len(children) == 4


def test_closest_is_as_good_as_looking_at_every_child() -> None:
    keys = [(0, 1, 0, 1), (0, 1), (1, 1, 0, 0), (1, 1, 1, 0), (1, 1, 1), (2, 2, 2, 2)]
    children = children_of(*keys)
    for length in range(1, 5):
        for query in product(range(3), repeat=length):
            node, num_common = children.closest(query)
            assert num_common == max(common_prefix_len(key, query) for key in keys)
            assert (node is None) == (num_common == 0)
            assert node is None or common_prefix_len(node.key, query) == num_common


def test_closest_of_no_children_is_none() -> None:
    assert Children().closest((1, 2)) == (None, 0)
    assert children_of((1, 2)).closest(()) == (None, 0)


def test_comparisons_grow_with_the_logarithm_of_the_siblings() -> None:
    children = children_of(*(tuple(counting([7] * 14 + [n // 64, n % 64])) for n in range(4096)))
    query = tuple(counting([7] * 14 + [31, 99]))
    CountingInt.num_comparisons = 0
    node, num_common = children.closest(query)
    assert node is not None
    assert num_common == 15
    # 12 halvings and 2 neighbours, each at most a page of == and one <.
    assert CountingInt.num_comparisons <= (12 + 1 + 2) * 17


def test_has_extension_finds_equal_and_longer_pages() -> None:
    children = children_of((1, 2, 3, 4), (5, 6))
    assert children.has_extension((1, 2))
    assert children.has_extension((5, 6))
    assert not children.has_extension((5, 6, 7))
    assert not children.has_extension((1, 3))
    assert not children.has_extension((9,))


def test_a_child_is_superseded_by_a_longer_one_that_starts_with_it() -> None:
    children = children_of((1, 2), (1, 2, 3), (1, 4), (2, 0, 0, 0))
    superseded = [node.key for node in children if children.is_superseded(node)]
    assert superseded == [(1, 2)]


def test_longest_prefix_finds_the_partial_page_that_a_longer_one_would_replace() -> None:
    children = children_of((1, 2), (3, 4, 5, 6))
    found = children.longest_prefix((1, 2, 3, 4))
    assert found is not None
    assert found.key == (1, 2)
    assert children.longest_prefix((1, 3)) is None
    assert children.longest_prefix((0,)) is None


def test_replace_keeps_the_place_and_remove_gives_it_up() -> None:
    children = children_of((1, 2), (3, 4))
    [first, second] = children
    other = Node(None, [(1, 2)], [9])
    children.replace(first, other)
    assert children.get((1, 2)) is other
    children.remove(other)
    assert list(children) == [second]


def test_two_children_with_one_first_page_are_refused() -> None:
    with pytest.raises(AssertionError, match="one first page"):
        children_of((1, 2), (1, 2))


def test_check_invariants_sees_children_out_of_order() -> None:
    children = children_of((1, 2), (3, 4))
    children.check_invariants()
    children._keys.reverse()
    with pytest.raises(AssertionError, match="not sorted"):
        children.check_invariants()
