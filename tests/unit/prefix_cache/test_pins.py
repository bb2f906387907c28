"""Pins: the last to be evicted, until they expire, up to a share of the pool or of a quota."""

import pytest

from prefix_cache import LeaseEnded, PrefixCache, pins
from prefix_cache.tree import descendants
from tests.unit.prefix_cache.cached_prompts import Clock, found, make_cache, need, remember

OLD = [1] * 8
NEW = [2] * 8


def pinned_edges(cache: PrefixCache) -> dict[int, int]:
    """By the first page of each pinned edge, when its last pin expires."""
    roots = cache.tree.roots.values()
    nodes = [node for root in roots for node in descendants(root)]
    return {node.page_ids[0]: node.pinned_until_ns for node in nodes if node.pinned_until_ns}


def test_pinned_pages_outlive_what_was_used_after_them() -> None:
    cache = make_cache(4)
    assert remember(cache, OLD, pin_len=8) == 2
    remember(cache, NEW)
    assert cache.counts().pinned == 2
    need(cache, 2)
    assert (found(cache, OLD), found(cache, NEW)) == (8, 0)


def test_pins_never_refuse_memory_to_who_needs_it() -> None:
    cache = make_cache(4)
    remember(cache, OLD, pin_len=8)
    remember(cache, NEW, pin_len=8)
    assert cache.num_available() == 4
    need(cache, 3)
    assert found(cache, OLD) == 0
    assert found(cache, NEW) == 4
    assert cache.counts().pinned == 1


def test_pins_are_bounded_in_number_where_they_stand_at_one_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pins, "MAX_PINS", 3)
    cache = make_cache(4)
    for number in range(5):
        remember(cache, OLD, pin_len=8, key=f"user {number}", until_ns=2_000 + number)
    owner = cache.tree.owners.find("ada")
    assert owner is not None
    assert sorted(owner.pins_by_key) == ["user 2", "user 3", "user 4"]
    assert cache.counts().pinned == 2


def test_a_pin_that_has_expired_is_none() -> None:
    clock = Clock()
    cache = make_cache(4, clock=clock)
    remember(cache, OLD, pin_len=8, until_ns=2_000)
    remember(cache, NEW)
    clock.now_ns = 2_000
    assert cache.counts().pinned == 0
    need(cache, 2)
    assert (found(cache, OLD), found(cache, NEW)) == (0, 8)


def test_expiry_is_noticed_when_pages_are_needed() -> None:
    clock = Clock()
    cache = make_cache(4, clock=clock)
    remember(cache, OLD, pin_len=8, until_ns=2_000)
    remember(cache, NEW)
    clock.now_ns = 2_001
    need(cache, 2)
    assert found(cache, OLD) == 0


def test_a_pin_covers_the_page_in_which_it_ends_and_none_behind() -> None:
    cache = make_cache(8)
    assert remember(cache, [1] * 4 + [2] * 4 + [3] * 4, pin_len=5) == 2
    assert cache.counts().pinned == 2
    need(cache, 6)
    assert found(cache, [1] * 4 + [2] * 4 + [3] * 4) == 8


def test_a_pin_covers_what_is_in_the_tree_only() -> None:
    cache = make_cache(8)
    assert remember(cache, [1] * 6, pin_len=100) == 1
    lease = cache.acquire(b"ada", [7] * 8, max_tokens=7, owner="ada")
    assert cache.pin(lease, 8, until_ns=2_000) == 0
    assert cache.pin(cache.acquire_none(), 8, until_ns=2_000) == 0
    assert cache.counts().pinned == 1


def test_nothing_is_pinned_through_an_ended_lease() -> None:
    cache = make_cache(8)
    lease = cache.acquire_none()
    cache.release(lease, None)
    with pytest.raises(LeaseEnded):
        cache.pin(lease, 8, until_ns=2_000)


def test_new_pins_of_a_key_take_the_place_of_older_ones() -> None:
    cache = make_cache(8)
    remember(cache, OLD, pin_len=8, key="chat")
    remember(cache, NEW, pin_len=4, key="chat")
    assert cache.counts().pinned == 1
    need(cache, 7)
    assert (found(cache, OLD), found(cache, NEW)) == (0, 4)


def test_one_request_may_pin_several_prefixes_under_a_key() -> None:
    cache = make_cache(8)
    tokens = [1] * 4 + [2] * 4 + [3] * 4
    lease = cache.acquire(b"ada", tokens, max_tokens=11, owner="ada")
    cache.extend(lease, 3)
    cache.publish(lease, tokens)
    cache.pin(lease, 4, until_ns=9_000, key="chat")
    cache.pin(lease, 12, until_ns=3_000, key="chat")
    cache.check_invariants()
    assert sorted(pinned_edges(cache).values()) == [3_000, 9_000]
    assert cache.counts().pinned == 3


def test_keys_of_two_owners_are_not_the_same() -> None:
    cache = make_cache(8)
    remember(cache, OLD, pin_len=8, key="chat")
    remember(cache, NEW, pin_len=8, key="chat", owner="bob")
    assert cache.counts().pinned == 4


def test_pins_without_a_key_stand_side_by_side_and_are_renewed_at_one_place() -> None:
    cache = make_cache(8)
    remember(cache, OLD, pin_len=8, until_ns=5_000)
    remember(cache, NEW, pin_len=8, until_ns=3_000)
    remember(cache, NEW, pin_len=8, until_ns=4_000)
    remember(cache, NEW, pin_len=8, until_ns=2_000)
    assert set(pinned_edges(cache).values()) == {4_000, 5_000}
    assert len(cache.tree.owners.of("ada").expiries) == 2


def test_over_the_share_what_expires_first_is_no_longer_pinned() -> None:
    cache = make_cache(16, pin_share=0.25)
    for number, until_ns in ((1, 5_000), (2, 4_000), (3, 6_000)):
        assert remember(cache, [number] * 8, pin_len=8, until_ns=until_ns) == 2
    assert sorted(pinned_edges(cache).values()) == [5_000, 6_000]
    assert cache.counts().pinned == 4
    assert remember(cache, [4] * 8, pin_len=8, until_ns=3_000) == 0
    assert sorted(pinned_edges(cache).values()) == [5_000, 6_000]


def test_of_a_prefix_longer_than_the_share_the_beginning_is_pinned() -> None:
    cache = make_cache(16, pin_share=0.25)
    assert remember(cache, [1] * 24, pin_len=24) == 4
    assert cache.counts().pinned == 4


def test_with_a_quota_the_share_is_one_of_it() -> None:
    cache = make_cache(16, pin_share=0.5)
    remember(cache, OLD, pin_len=8, until_ns=5_000)
    remember(cache, NEW, pin_len=8, until_ns=6_000)
    cache.set_quota("ada", 4)
    cache.check_invariants()
    assert sorted(pinned_edges(cache).values()) == [6_000]
    remember(cache, [1] * 8, pin_len=8, owner="bob")
    assert cache.counts().pinned == 4


def test_a_share_of_nothing_pins_nothing() -> None:
    cache = make_cache(16, pin_share=0.0)
    assert remember(cache, OLD, pin_len=8) == 0


def test_a_shared_prefix_counts_once_and_stays_as_long_as_its_last_pin() -> None:
    clock = Clock()
    cache = make_cache(16, clock=clock)
    remember(cache, [1] * 4 + [2] * 4, pin_len=8, until_ns=2_000)
    remember(cache, [1] * 4 + [3] * 4, pin_len=8, until_ns=3_000)
    assert cache.counts().pinned == 3
    clock.now_ns = 2_000
    assert cache.counts().pinned == 2
    cache.check_invariants()
    assert list(pinned_edges(cache).values()) == [3_000, 3_000]


def test_a_sequence_that_goes_on_behind_its_pin_is_not_pinned_there() -> None:
    cache = make_cache(8)
    tokens = [1] * 12
    lease = cache.acquire(b"ada", tokens, max_tokens=11, owner="ada")
    cache.extend(lease, 3)
    cache.publish(lease, tokens[:8])
    assert cache.pin(lease, 8, until_ns=2_000) == 2
    cache.publish(lease, tokens)
    cache.check_invariants()
    assert cache.counts().pinned == 2


def test_a_pinned_edge_that_is_split_is_pinned_on_both_sides() -> None:
    cache = make_cache(8)
    remember(cache, [1] * 4 + [2] * 4, pin_len=8)
    remember(cache, [1] * 4 + [3] * 4)
    assert cache.counts().pinned == 2
    assert len(pinned_edges(cache)) == 2


def test_a_pin_ends_a_node_higher_when_its_last_one_goes() -> None:
    cache = make_cache(6)
    remember(cache, [1] * 12, pin_len=12)
    for end in (4, 8):
        remember(cache, [1] * end + [5])
    need(cache, 4)
    assert cache.counts().pinned == 2
    assert list(pinned_edges(cache).values()) == [2_000, 2_000]


def test_pins_end_with_their_last_page() -> None:
    cache = make_cache(4)
    remember(cache, [1] * 12, pin_len=12, key="chat")
    need(cache, 3)
    assert cache.counts().pinned == 1
    need(cache, 4)
    assert cache.counts().pinned == 0
    assert not cache.tree.owners.find("ada")


def test_pins_that_end_again_and_again_do_not_stay_in_memory() -> None:
    cache = make_cache(16)
    for number in range(500):
        remember(cache, [number % 3] * 8, pin_len=8, key="chat", until_ns=10**9 + number)
    pages = cache.tree.owners.of("ada")
    assert len(pages.expiries._heap) <= 64
    assert sum(map(len, pages.pins_by_key.values())) == 1


def test_a_flush_takes_pinned_pages_too() -> None:
    cache = make_cache(8)
    remember(cache, OLD, pin_len=8)
    assert cache.flush() == 2
    assert cache.counts().pinned == 0
    cache.check_invariants()
