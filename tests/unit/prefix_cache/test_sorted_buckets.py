"""Sorted buckets against a plain sorted list."""

import random
from dataclasses import dataclass

import pytest

from prefix_cache.sorted_buckets import MAX_BUCKET, SortedBuckets
from tests.unit.prefix_cache.counting import CountingBytes


@dataclass(eq=False)
class Item:
    key: float


def key_of(item: Item) -> float:
    return item.key


def make(*keys: float) -> SortedBuckets[Item]:
    return SortedBuckets(key_of, [Item(key) for key in keys])


def test_random_changes_leave_it_sorted() -> None:
    rng = random.Random(4)
    items, plain = make(), list[Item]()
    for step in range(6000):
        if plain and rng.random() < (0.2 if step < 3000 else 0.7):
            items.remove(plain.pop(rng.randrange(len(plain))))
        else:
            plain.append(Item(rng.random()))
            items.add(plain[-1])
        if step % 500 == 0 or len(plain) < 3:
            items.check_invariants()
            assert list(items) == sorted(plain, key=key_of)
            assert len(items) == len(plain)
    assert 10 * MAX_BUCKET > len(plain) > MAX_BUCKET


def test_the_neighbours_of_a_key_are_found_across_buckets() -> None:
    num_items = 5 * MAX_BUCKET
    items = make(*range(num_items))
    for place in range(num_items):
        before, after = items.around(place)
        assert after is not None
        assert after.key == place
        assert (before.key if before else -1) == place - 1
    before, after = items.around(num_items)
    assert before is not None
    assert (before.key, after) == (num_items - 1, None)
    assert make().around(1) == (None, None)


def test_the_first_one_is_found_until_there_is_none() -> None:
    items = make(*range(3 * MAX_BUCKET))
    for expected in range(3 * MAX_BUCKET):
        first = items.first()
        assert first is not None
        assert first.key == expected
        items.remove(first)
    assert items.first() is None
    assert len(items) == 0


def test_what_comes_in_order_fills_its_buckets() -> None:
    items = make(*range(10 * MAX_BUCKET))
    assert len(items._buckets) == 10


def test_every_so_many_items_are_a_sample_in_order() -> None:
    items = make(*range(10 * MAX_BUCKET))
    sample = [item.key for item in items.every(16)]
    assert sample == sorted(sample)
    assert len(sample) == 10 * -(-MAX_BUCKET // 16)
    assert items.every(1) == list(items)


def test_an_item_is_exchanged_for_one_of_the_same_rank() -> None:
    items = make(*range(2 * MAX_BUCKET))
    last = list(items)[MAX_BUCKET - 1]
    items.replace(last, Item(last.key + 0.5))
    items.check_invariants()
    assert list(items)[MAX_BUCKET - 1].key == last.key + 0.5


def test_an_item_that_is_not_in_is_refused() -> None:
    items = make(1, 2, 3)
    with pytest.raises(AssertionError, match="not where its key says"):
        items.remove(Item(2))


def test_comparisons_grow_with_the_logarithm_of_the_items() -> None:
    keys = sorted(CountingBytes(f"{number:08}".encode()) for number in range(20_000))
    items = SortedBuckets(lambda key: key, keys)
    CountingBytes.num_comparisons = 0
    before, _ = items.around(CountingBytes(b"00012345x"))
    assert before == b"00012345"
    assert 0 < CountingBytes.num_comparisons <= 9 + 7


def test_check_invariants_sees_disorder() -> None:
    items = make(1, 2, 3)
    items._buckets[0].reverse()
    with pytest.raises(AssertionError, match="not sorted"):
        items.check_invariants()
    items = make(1, 2, 3)
    items._lasts[0] = 9
    with pytest.raises(AssertionError, match="wrong key"):
        items.check_invariants()
