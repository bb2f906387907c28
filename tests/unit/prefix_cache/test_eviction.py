"""The order of eviction: least recently used first, stale entries never returned."""

import random

import pytest

from prefix_cache.eviction import LruQueue
from tests.unit.prefix_cache.counting import CountingInt


def drain(queue: LruQueue[str]) -> list[str]:
    order = []
    while len(queue):
        order.append(queue.least_recent())
        queue.discard(order[-1])
    return order


def test_items_come_out_in_the_order_of_their_clocks() -> None:
    queue: LruQueue[str] = LruQueue()
    for item, last_used in [("b", 2), ("c", 3), ("a", 1)]:
        queue.add(item, last_used)
    assert drain(queue) == ["a", "b", "c"]


def test_of_equal_clocks_the_first_added_goes_first() -> None:
    queue: LruQueue[str] = LruQueue()
    for item in ["x", "a", "m"]:
        queue.add(item, 7)
    assert drain(queue) == ["x", "a", "m"]


def test_adding_again_moves_an_item() -> None:
    queue: LruQueue[str] = LruQueue()
    queue.add("a", 1)
    queue.add("b", 2)
    queue.add("a", 3)
    assert drain(queue) == ["b", "a"]


def test_least_recent_leaves_the_item_in_place() -> None:
    queue: LruQueue[str] = LruQueue()
    queue.add("a", 1)
    assert queue.least_recent() == queue.least_recent() == "a"
    assert "a" in queue
    assert list(queue) == ["a"]


def test_a_discarded_item_never_comes_out() -> None:
    queue: LruQueue[str] = LruQueue()
    queue.add("a", 1)
    queue.add("b", 2)
    queue.discard("a")
    queue.discard("a")
    assert "a" not in queue
    assert drain(queue) == ["b"]


def test_an_empty_queue_has_no_least_recent_item() -> None:
    queue: LruQueue[str] = LruQueue()
    queue.add("a", 1)
    queue.discard("a")
    with pytest.raises(IndexError):
        queue.least_recent()


def test_items_used_again_and_again_do_not_grow_the_heap() -> None:
    queue: LruQueue[int] = LruQueue()
    for clock in range(10_000):
        queue.add(clock % 10, clock)
        queue.check_invariants() if clock % 100 == 0 else None
    assert len(queue._heap) <= 64
    assert queue.least_recent() == 0


def test_discarded_items_do_not_stay_in_memory() -> None:
    queue: LruQueue[int] = LruQueue()
    for clock in range(1000):
        queue.add(clock, clock)
    for clock in range(999):
        queue.discard(clock)
    queue.check_invariants()
    assert len(queue._heap) <= 64


def test_work_per_eviction_grows_with_the_logarithm_of_the_leaves() -> None:
    clocks = list(range(4096))
    random.Random(5).shuffle(clocks)
    queue: LruQueue[int] = LruQueue()
    for clock in clocks:
        queue.add(clock, CountingInt(clock))
    CountingInt.num_comparisons = 0
    for expected in range(100):
        queue.discard(expected)
        assert queue.least_recent() == expected + 1
    # A heap pop compares two children on each of 12 levels; a tuple compares == and then <.
    assert CountingInt.num_comparisons <= 100 * 2 * 2 * 12


def test_check_invariants_sees_an_item_without_an_entry() -> None:
    queue: LruQueue[str] = LruQueue()
    queue.add("a", 1)
    queue._heap.clear()
    with pytest.raises(AssertionError, match="no entry"):
        queue.check_invariants()
