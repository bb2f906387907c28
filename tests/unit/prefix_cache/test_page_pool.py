"""The free list: no page twice, none lost, none made up."""

import pytest

from prefix_cache.page_pool import PagePool


def test_a_new_pool_gives_every_page_once() -> None:
    pool = PagePool(4)
    assert sorted(pool.allocate(4)) == [0, 1, 2, 3]
    assert pool.num_free == 0


def test_the_page_freed_last_is_allocated_first() -> None:
    pool = PagePool(4)
    first, second, _ = pool.allocate(3)
    pool.free([second])
    pool.free([first])
    assert pool.allocate(2) == [first, second]


def test_allocating_nothing_changes_nothing() -> None:
    pool = PagePool(2)
    assert pool.allocate(0) == []
    assert pool.num_free == 2


def test_is_free_follows_a_page_through_its_life() -> None:
    pool = PagePool(1)
    assert pool.is_free(0)
    pool.allocate(1)
    assert not pool.is_free(0)
    pool.free([0])
    assert pool.is_free(0)


def test_a_page_cannot_be_freed_twice() -> None:
    pool = PagePool(2)
    [page_id] = pool.allocate(1)
    pool.free([page_id])
    with pytest.raises(AssertionError, match="freed twice"):
        pool.free([page_id])


def test_more_than_the_free_pages_cannot_be_allocated() -> None:
    pool = PagePool(2)
    pool.allocate(1)
    with pytest.raises(AssertionError):
        pool.allocate(2)
    assert pool.num_free == 1


def test_a_pool_without_pages_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        PagePool(0)


def test_check_invariants_sees_a_page_that_is_in_the_free_list_twice() -> None:
    pool = PagePool(2)
    pool.check_invariants()
    pool._free.append(pool._free[0])
    with pytest.raises(AssertionError, match="twice"):
        pool.check_invariants()


def test_the_next_free_pages_are_those_that_are_allocated_and_stay_free() -> None:
    pool = PagePool(6)
    pool.allocate(2)
    expected = pool.next_free(3)
    assert pool.num_free == 4
    assert pool.allocate(3) == expected
    assert pool.next_free(9) == [5]
    assert pool.next_free(0) == []
