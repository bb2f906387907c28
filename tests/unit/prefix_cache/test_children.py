"""Children in sorted order: the closest sibling is found without looking at the others."""

import random
from dataclasses import dataclass
from itertools import product

import pytest

from prefix_cache import children as children_module
from prefix_cache import sorted_buckets
from prefix_cache.children import (
    MAX_LIST,
    MAX_TUPLE,
    Children,
    around,
    change_edge,
    child_with,
    closest,
    every,
    is_superseded,
    longest_prefix,
    with_child,
    with_replaced,
    without_child,
)
from prefix_cache.packed_tokens import pack, unpack
from prefix_cache.sorted_buckets import SortedBuckets
from tests.unit.prefix_cache.cached_prompts import make_cache, need
from tests.unit.prefix_cache.counting import CountingBytes


@dataclass(eq=False)
class Child:
    edge: bytes

    @property
    def tokens(self) -> list[int]:
        return unpack(self.edge)


def children_of(*rows: tuple[int, ...]) -> Children[Child]:
    children: Children[Child] = ()
    for row in rows:
        children = with_child(children, Child(pack(row)))
    return children


def common_len(left: list[int], right: list[int]) -> int:
    pairs = zip(left, right, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(left), len(right)))


def test_a_child_is_found_by_its_whole_page_only() -> None:
    children = children_of((1, 2, 3, 4, 9, 9, 9, 9), (1, 2), (5, 6, 7, 8))
    found = child_with(children, pack((1, 2, 3, 4)))
    assert found is not None
    assert found.tokens == [1, 2, 3, 4, 9, 9, 9, 9]
    assert child_with(children, pack((1, 2, 3, 5))) is None
    assert child_with(children, pack((9, 9, 9, 9))) is None


def test_a_child_that_goes_on_after_these_tokens_is_found() -> None:
    children = children_of((1, 2, 3, 4), (5, 6))
    assert child_with(children, pack((1, 2))) is not None
    assert child_with(children, pack((5, 6))) is not None
    assert child_with(children, pack((5, 6, 7))) is None
    assert child_with(children, pack((1, 3))) is None


def test_children_are_iterated_in_the_order_of_their_tokens() -> None:
    children = children_of((3, 0), (1, 0), (2, 0), (1,), (256, 0))
    assert [child.tokens for child in children] == [[1], [1, 0], [2, 0], [3, 0], [256, 0]]


def test_closest_is_as_good_as_looking_at_every_child() -> None:
    rows = [(0, 1, 0, 1), (0, 1), (1, 1, 0, 0), (1, 1, 1, 0), (1, 1, 1), (2, 2, 2, 2)]
    children = children_of(*rows)
    for length in range(1, 5):
        for query in product(range(3), repeat=length):
            child, num_common = closest(children, pack(query))
            assert num_common == max(common_len(list(row), list(query)) for row in rows)
            assert (child is None) == (num_common == 0)
            assert child is None or common_len(child.tokens, list(query)) == num_common


def test_closest_of_no_children_is_none() -> None:
    assert closest((), pack((1, 2))) == (None, 0)
    assert closest(children_of((1, 2)), b"") == (None, 0)


def test_a_child_is_superseded_by_a_longer_one_that_starts_with_it() -> None:
    children = children_of((1, 2), (1, 2, 0), (1, 4), (2, 0, 0, 0))
    superseded = [child.tokens for child in children if is_superseded(children, child)]
    assert superseded == [[1, 2]]


def test_longest_prefix_finds_the_partial_page_that_a_longer_one_would_replace() -> None:
    children = children_of((1, 2), (3, 4, 5, 6))
    found = longest_prefix(children, pack((1, 2, 3, 4)))
    assert found is not None
    assert found.tokens == [1, 2]
    assert longest_prefix(children, pack((1, 3))) is None
    assert longest_prefix(children, pack((0,))) is None


def test_the_container_grows_and_shrinks_with_the_children() -> None:
    rng = random.Random(2)
    rows = rng.sample([(a, b) for a in range(40) for b in range(40)], 2 * MAX_LIST)
    children = children_of()
    kinds = {}
    for row in rows:
        children = with_child(children, Child(pack(row)))
        kinds[len(children)] = type(children)
    assert [kinds[n] for n in (1, MAX_TUPLE, MAX_TUPLE + 1)] == [tuple, tuple, list]
    assert [kinds[n] for n in (MAX_LIST, MAX_LIST + 1)] == [list, SortedBuckets]
    assert [tuple(child.tokens) for child in children] == sorted(rows)
    for row in rows:
        child = child_with(children, pack(row))
        assert child is not None
        other = Child(child.edge)
        children = with_replaced(children, child, other)
        children = without_child(children, other)
    assert children == ()


@pytest.mark.parametrize("num_children", [2, MAX_TUPLE + 2, MAX_LIST + 2])
def test_the_neighbours_are_the_same_in_every_container(num_children: int) -> None:
    children = children_of(*((3, number) for number in range(num_children)))
    before, after = around(children, pack((3, 1)))
    assert before is not None
    assert after is not None
    assert (before.tokens, after.tokens) == ([3, 0], [3, 1])
    assert around(children, pack((9,)))[1] is None
    assert list(every(children, 1)) == list(children)
    assert len(every(children, 2)) <= num_children // 2 + num_children // 20 + 1


@pytest.mark.parametrize("num_children", [2, MAX_TUPLE + 2, MAX_LIST + 2])
def test_a_child_is_found_after_its_edge_became_longer_or_shorter(num_children: int) -> None:
    children = children_of(*((first, 5, 5) for first in range(num_children)))
    for child in list(children):
        change_edge(children, child, child.edge + pack((9,)))
    for child in list(children):
        change_edge(children, child, child.edge[:4])
    for child in list(children):
        children = without_child(children, child)
    assert children == ()


def test_edges_grow_and_are_cut_among_many_siblings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children_module, "MAX_LIST", 2)
    monkeypatch.setattr(sorted_buckets, "MAX_BUCKET", 2)
    cache = make_cache(64)
    leases = [cache.acquire(b"a", [first] * 4, max_tokens=3) for first in range(12)]
    for num_pages in range(1, 5):
        for first, lease in enumerate(leases):
            cache.extend(lease, 1)
            cache.publish(lease, [first, *[99 - first] * (4 * num_pages - 1)])
    cache.check_invariants()
    for lease in leases:
        cache.release(lease, None)
    for num_pages in range(17, 65):  # 16 are free
        need(cache, num_pages)
    assert cache.counts().cached == 0


def test_a_child_that_is_not_there_is_refused() -> None:
    for num_children in (3, MAX_LIST + 1):
        children = children_of(*((number,) for number in range(num_children)))
        with pytest.raises(AssertionError, match="not where its"):
            without_child(children, Child(pack((1,))))


def test_comparisons_grow_with_the_logarithm_of_the_siblings() -> None:
    num_comparisons = {}
    for num_siblings in (64, 4096):
        children: Children[Child] = ()
        for number in range(num_siblings):
            edge = CountingBytes(pack([7] * 14 + [number // 64, number % 64]))
            children = with_child(children, Child(edge))
        CountingBytes.num_comparisons = 0
        child, num_common = closest(children, pack([7] * 14 + [0, 63, 2]))
        assert child is not None
        assert num_common == 16
        num_comparisons[num_siblings] = CountingBytes.num_comparisons
    assert 0 < num_comparisons[64] <= 7
    assert num_comparisons[4096] <= num_comparisons[64] + 8
