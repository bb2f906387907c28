"""Owners: what they have is counted, bounded by a quota, and flushed apart."""

from prefix_cache import PrefixCache
from tests.unit.prefix_cache.cached_prompts import Clock, found, make_cache, need, remember


def num_pages_of(cache: PrefixCache, owner: str) -> int:
    pages = cache.tree.owners.find(owner)
    return pages.num_pages if pages is not None else 0


def test_pages_count_for_their_owner_in_all_its_namespaces() -> None:
    cache = make_cache()
    for salt in (b"one", b"two"):
        lease = cache.acquire(salt, [1] * 8, max_tokens=7, owner="ada")
        cache.extend(lease, 2)
        cache.release(lease, [1] * 8)
    remember(cache, [1] * 4, owner="bob")
    assert (num_pages_of(cache, "ada"), num_pages_of(cache, "bob")) == (4, 1)
    assert {root.owner for root in cache.tree.roots.values()} == {"ada", "bob"}


def test_over_its_quota_an_owner_loses_its_own_least_recently_used_pages() -> None:
    cache = make_cache()
    remember(cache, [9] * 8, owner="bob")
    cache.set_quota("ada", 4)
    for number in (1, 2, 3):
        remember(cache, [number] * 8)
    assert num_pages_of(cache, "ada") == 4
    assert [found(cache, [number] * 8) for number in (1, 2, 3)] == [0, 8, 8]
    assert found(cache, [9] * 8, owner="bob") == 8
    assert cache.num_evicted_pages == 2


def test_only_as_many_pages_go_as_are_over_the_quota() -> None:
    cache = make_cache()
    cache.set_quota("ada", 3)
    remember(cache, [1] * 8)
    remember(cache, [2] * 8)
    assert (found(cache, [1] * 8), found(cache, [2] * 8)) == (4, 8)


def test_pages_in_use_may_be_over_the_quota_until_they_are_released() -> None:
    cache = make_cache()
    cache.set_quota("ada", 2)
    lease = cache.acquire(b"ada", [1] * 16, max_tokens=15, owner="ada")
    cache.extend(lease, 4)
    cache.publish(lease, [1] * 16)
    cache.check_invariants()
    assert num_pages_of(cache, "ada") == 4
    cache.release(lease, [1] * 16)
    cache.check_invariants()
    assert found(cache, [1] * 16) == 8


def test_a_publication_makes_room_among_the_pages_that_nobody_uses() -> None:
    cache = make_cache()
    cache.set_quota("ada", 3)
    remember(cache, [2] * 8)
    lease = cache.acquire(b"ada", [1] * 8, max_tokens=7, owner="ada")
    cache.extend(lease, 2)
    cache.publish(lease, [1] * 8)
    cache.check_invariants()
    assert found(cache, [2] * 8) == 4


def test_a_quota_that_comes_late_or_shrinks_holds_at_once() -> None:
    cache = make_cache()
    for number in (1, 2, 3):
        remember(cache, [number] * 4)
    cache.set_quota("ada", 2)
    cache.check_invariants()
    assert [found(cache, [number] * 4) for number in (1, 2, 3)] == [0, 4, 4]
    cache.set_quota("ada", 1)
    assert [found(cache, [number] * 4) for number in (1, 2, 3)] == [0, 0, 4]
    cache.set_quota("ada", None)
    remember(cache, [5] * 16)
    cache.check_invariants()
    assert num_pages_of(cache, "ada") == 5


def test_a_quota_of_nothing_keeps_nothing() -> None:
    cache = make_cache()
    cache.set_quota("ada", 0)
    remember(cache, [1] * 8)
    assert cache.counts().cached == 0


def test_of_an_owners_own_pages_the_pinned_ones_go_last() -> None:
    cache = make_cache(pin_share=0.5)
    cache.set_quota("ada", 4)
    remember(cache, [1] * 8, pin_len=8)
    remember(cache, [2] * 8)
    remember(cache, [3] * 8)
    assert [found(cache, [number] * 8) for number in (1, 2, 3)] == [8, 0, 8]


def test_a_pin_that_has_expired_does_not_hold_pages_in_the_quota() -> None:
    clock = Clock()
    cache = make_cache(clock=clock)
    cache.set_quota("ada", 4)
    remember(cache, [1] * 8, pin_len=8)
    remember(cache, [2] * 8)
    clock.now_ns = 3_000
    remember(cache, [3] * 8)
    assert [found(cache, [number] * 8) for number in (1, 2, 3)] == [0, 8, 8]


def test_a_tail_that_is_copied_may_go_at_once() -> None:
    cache = make_cache()
    remember(cache, [1] * 8)
    lease = cache.acquire(b"ada", [1] * 6 + [5], max_tokens=6, owner="ada")
    cache.set_quota("ada", 1)
    cache.check_invariants()
    cache.release_tail(lease)
    cache.check_invariants()
    assert num_pages_of(cache, "ada") == 1


def test_a_quota_does_not_shield_from_the_eviction_of_all() -> None:
    cache = make_cache(4)
    cache.set_quota("ada", 4)
    remember(cache, [1] * 8)
    remember(cache, [2] * 8, owner="bob")
    need(cache, 2)
    assert (found(cache, [1] * 8), found(cache, [2] * 8, owner="bob")) == (0, 8)


def test_an_owner_is_forgotten_with_its_last_page() -> None:
    cache = make_cache()
    for number in range(20):
        remember(cache, [1] * 8, owner=f"owner {number}")
    cache.flush()
    assert list(cache.tree.owners) == []


def test_one_owners_pages_are_flushed_and_no_others() -> None:
    cache = make_cache()
    remember(cache, [1] * 8)
    remember(cache, [1] * 8, owner="bob")
    lease = cache.acquire(b"ada", [1] * 4 + [5], max_tokens=4, owner="ada")
    assert cache.flush("ada") == 1
    cache.check_invariants()
    assert cache.flush("nobody") == 0
    assert (found(cache, [1] * 8), found(cache, [1] * 8, owner="bob")) == (4, 8)
    cache.release(lease, None)
    assert cache.flush("ada") == 1
