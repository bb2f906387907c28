"""The cache through its public methods; pages of 4 tokens unless a test says otherwise."""

from collections.abc import Sequence

import pytest

import prefix_cache
from prefix_cache import Lease, LeaseEnded, OutOfPages, PageCounts, PrefixCache, TailMatch
from tests.unit.prefix_cache.counting import CountingSequence

A = b"tenant a"
B = b"tenant b"


def make(num_pages: int = 16) -> PrefixCache:
    return PrefixCache(num_pages=num_pages, page_size=4)


def start(cache: PrefixCache, tokens: Sequence[int], *, namespace: bytes = A) -> Lease:
    """Acquires and extends as the engine does for a prompt of which the last token is computed."""
    lease = cache.acquire(namespace, tokens, max_tokens=len(tokens) - 1)
    cache.extend(lease, -(-len(tokens) // cache.page_size) - len(lease.page_ids))
    return lease


def remember(cache: PrefixCache, tokens: Sequence[int], *, namespace: bytes = A) -> list[int]:
    """Runs one sequence from acquire to release; returns the pages it wrote or shared."""
    lease = start(cache, tokens, namespace=namespace)
    cache.release_tail(lease)
    page_ids = list(lease.page_ids)
    cache.release(lease, tokens)
    cache.check_invariants()
    return page_ids


def test_a_cold_cache_shares_nothing() -> None:
    cache = make()
    lease = cache.acquire(A, [1, 2, 3, 4, 5], max_tokens=4)
    assert (lease.page_ids, lease.num_cached_tokens, lease.tail) == ([], 0, None)
    assert cache.peek(A, [1, 2, 3, 4, 5]) == 0


def test_a_second_sequence_shares_full_pages_and_copies_part_of_one() -> None:
    cache = make()
    page_ids = remember(cache, [1, 1, 1, 1, 2, 2, 2, 2, 3, 3])
    lease = cache.acquire(A, [1, 1, 1, 1, 2, 2, 2, 9, 9], max_tokens=8)
    assert lease.page_ids == page_ids[:1]
    assert lease.num_shared_tokens == 4
    assert lease.tail == TailMatch(page_id=page_ids[1], num_tokens=3)
    assert lease.num_cached_tokens == 7
    cache.check_invariants()


def test_the_partial_last_page_of_a_finished_sequence_is_found_again() -> None:
    cache = make()
    page_ids = remember(cache, [1, 1, 1, 1, 2, 2])
    lease = cache.acquire(A, [1, 1, 1, 1, 2, 2, 7, 7, 7], max_tokens=8)
    assert lease.tail == TailMatch(page_id=page_ids[1], num_tokens=2)
    assert lease.num_cached_tokens == 6


@pytest.mark.parametrize("max_tokens", range(11))
def test_a_match_never_exceeds_max_tokens(max_tokens: int) -> None:
    cache = make()
    tokens = [1, 1, 1, 1, 2, 2, 2, 2, 3, 3]
    remember(cache, tokens)
    assert cache.acquire(A, tokens, max_tokens=max_tokens).num_cached_tokens == max_tokens
    cache.check_invariants()


def test_tenants_share_nothing() -> None:
    cache = make()
    remember(cache, [1, 1, 1, 1, 2, 2], namespace=A)
    assert cache.peek(B, [1, 1, 1, 1, 2, 2]) == 0
    assert cache.acquire(B, [1, 1, 1, 1, 2, 2], max_tokens=5).num_cached_tokens == 0


def test_a_lease_without_match_leaves_nothing_behind() -> None:
    cache = make()
    remember(cache, [1, 1, 1, 1])
    lease = cache.acquire_none()
    cache.extend(lease, 2)
    cache.publish(lease, [1, 1, 1, 1, 2])
    assert lease.num_cached_tokens == 0
    cache.release(lease, [1, 1, 1, 1, 2])
    assert cache.counts() == PageCounts(free=15, cached=1, locked=0, held=0, total=16)


def test_peek_agrees_with_acquire_and_changes_nothing() -> None:
    cache = make(4)
    old = [1, 1, 1, 1, 2, 2]
    remember(cache, old)
    remember(cache, [5, 5, 5, 5])
    assert cache.peek(A, [*old, 3]) == 6
    cache.extend(cache.acquire_none(), 2)
    assert cache.peek(A, old) == 4  # still the least recently used: its end went first
    assert cache.peek(A, [5, 5, 5, 5]) == 4


def test_counts_follow_pages_through_their_states() -> None:
    cache = make(8)
    tokens = [1, 1, 1, 1, 2, 2, 2, 2, 3]
    lease = start(cache, tokens)
    assert cache.counts() == PageCounts(free=5, cached=0, locked=0, held=3, total=8)
    cache.publish(lease, tokens[:5])
    assert cache.counts() == PageCounts(free=5, cached=1, locked=1, held=2, total=8)
    cache.release(lease, tokens)
    assert cache.counts() == PageCounts(free=5, cached=3, locked=0, held=0, total=8)
    assert cache.num_available() == 8


def test_published_pages_are_shared_while_their_writer_still_runs() -> None:
    cache = make()
    lease = start(cache, [1, 1, 1, 1, 2, 2, 2, 2, 3])
    cache.publish(lease, [1, 1, 1, 1, 2, 2, 2])
    other = cache.acquire(A, [1, 1, 1, 1, 2, 2, 2, 2, 3], max_tokens=8)
    assert other.page_ids == lease.page_ids[:1]
    assert other.num_cached_tokens == 4
    cache.check_invariants()


def test_two_writers_of_one_prefix_end_up_with_one_copy() -> None:
    cache = make()
    tokens = [1, 1, 1, 1, 2, 2, 2, 2, 3]
    one, other = start(cache, tokens), start(cache, tokens)
    cache.publish(one, tokens)
    cache.publish(other, tokens)
    assert one.page_ids[:2] == other.page_ids[:2]
    assert one.page_ids[2] != other.page_ids[2]
    assert cache.counts() == PageCounts(free=12, cached=2, locked=2, held=2, total=16)
    cache.check_invariants()
    for lease in (one, other):
        cache.release(lease, tokens)
        cache.check_invariants()
    assert cache.counts().cached == 3


def test_publishing_again_without_a_new_full_page_changes_nothing() -> None:
    cache = make()
    tokens = [1, 1, 1, 1, 2, 2]
    lease = start(cache, tokens)
    cache.publish(lease, tokens[:4])
    before = (cache.counts(), list(lease.page_ids))
    cache.publish(lease, tokens)
    cache.publish(lease, tokens[:2])
    assert (cache.counts(), lease.page_ids) == before


def test_publish_reads_only_the_tokens_of_newly_filled_pages() -> None:
    cache = PrefixCache(num_pages=300, page_size=16)
    lease = cache.acquire(A, [0], max_tokens=0)
    cache.extend(lease, 300)
    for num_pages in range(1, 301):
        tokens = CountingSequence(range(num_pages * 16 + 3))
        cache.publish(lease, tokens)
        assert tokens.num_read == 16
    assert cache.counts().locked == 300


def test_a_match_packs_no_more_than_a_small_multiple_of_what_it_finds() -> None:
    cache = make(3000)
    remember(cache, [1] * 1200)
    for num_matched in (6, 700):
        query = CountingSequence([1] * num_matched + [2] * 9000)
        assert cache.acquire(A, query, max_tokens=9000).num_cached_tokens == num_matched
        assert query.num_read <= max(256, 2 * num_matched)


def test_extend_evicts_the_least_recently_used_first() -> None:
    cache = make(4)
    remember(cache, [1, 1, 1, 1])
    remember(cache, [2, 2, 2, 2])
    cache.release(cache.acquire(A, [1, 1, 1, 1], max_tokens=4), None)
    cache.extend(cache.acquire_none(), 3)
    assert cache.peek(A, [1, 1, 1, 1]) == 4
    assert cache.peek(A, [2, 2, 2, 2]) == 0
    assert cache.num_evicted_pages == 1


def test_extend_says_what_is_missing_and_evicts_nothing() -> None:
    cache = make(4)
    remember(cache, [1, 1, 1, 1])
    lease = start(cache, [2, 2, 2, 2])
    before = cache.counts()
    with pytest.raises(OutOfPages) as caught:
        cache.extend(lease, 4)
    assert (caught.value.needed, caught.value.available) == (4, 3)
    assert cache.counts() == before
    assert cache.num_evicted_pages == 0
    assert len(lease.page_ids) == 1
    assert cache.peek(A, [1, 1, 1, 1]) == 4


def test_extend_by_nothing_gives_nothing() -> None:
    cache = make(1)
    lease = start(cache, [1, 1, 1, 1])
    assert cache.extend(lease, 0) == []
    assert len(lease.page_ids) == 1


def test_pages_of_a_running_lease_are_never_evicted() -> None:
    cache = make(4)
    lease = start(cache, [1, 1, 1, 1, 2, 2, 2, 2])
    cache.publish(lease, [1, 1, 1, 1, 2, 2, 2, 2])
    assert cache.num_available() == 2
    with pytest.raises(OutOfPages):
        cache.extend(cache.acquire_none(), 3)
    assert cache.peek(A, [1, 1, 1, 1, 2, 2, 2, 2]) == 8


def test_the_tail_stays_until_it_is_copied() -> None:
    cache = make(4)
    remember(cache, [1, 1, 1, 1])
    lease = cache.acquire(A, [1, 1, 9], max_tokens=2)
    assert lease.num_tail_tokens == 2
    assert cache.num_available() == 3
    cache.release_tail(lease)
    cache.release_tail(lease)
    assert lease.tail is None
    assert lease.num_cached_tokens == 2
    assert cache.num_available() == 4
    cache.check_invariants()


def test_a_sequence_that_needs_the_whole_pool_gets_no_tail_and_so_fits() -> None:
    cache = make(4)
    remember(cache, [1, 1, 1, 1, 2, 2, 2, 2])
    tokens = [1, 1, 1, 1, 2, 2, 9, 9, 9, 9, 9, 9, 9]
    lease = cache.acquire(A, tokens, max_tokens=12)
    assert (lease.num_cached_tokens, lease.tail) == (4, None)
    assert len(cache.extend(lease, 3)) == 3


def test_release_is_idempotent() -> None:
    cache = make()
    lease = start(cache, [1, 1, 1, 1, 2])
    cache.release(lease, [1, 1, 1, 1, 2])
    before = cache.counts()
    cache.release(lease, [1, 1, 1, 1, 2])
    cache.release_tail(lease)
    assert cache.counts() == before
    cache.check_invariants()


def test_release_without_tokens_keeps_only_what_was_published() -> None:
    cache = make()
    tokens = [1, 1, 1, 1, 2, 2, 2, 2, 3]
    lease = start(cache, tokens)
    cache.publish(lease, tokens[:4])
    cache.release(lease, None)
    assert cache.peek(A, tokens) == 4
    assert cache.counts() == PageCounts(free=15, cached=1, locked=0, held=0, total=16)


def test_release_in_the_middle_of_a_prefill_keeps_what_was_computed() -> None:
    cache = make()
    lease = start(cache, [1, 1, 1, 1, 2, 2, 2, 2, 3])
    cache.release(lease, [1, 1, 1, 1, 2])
    assert cache.peek(A, [1, 1, 1, 1, 2, 2, 2, 2]) == 5
    assert cache.counts().free == 14


def test_release_before_extend_gives_the_match_back() -> None:
    cache = make()
    remember(cache, [1, 1, 1, 1, 2, 2])
    lease = cache.acquire(A, [1, 1, 1, 1, 2, 2, 3], max_tokens=6)
    cache.release(lease, None)
    assert cache.counts() == PageCounts(free=14, cached=2, locked=0, held=0, total=16)
    cache.check_invariants()


def test_an_ended_lease_cannot_be_used() -> None:
    cache = make()
    lease = start(cache, [1, 1, 1, 1])
    cache.release(lease, None)
    with pytest.raises(LeaseEnded):
        cache.extend(lease, 1)
    with pytest.raises(LeaseEnded):
        cache.publish(lease, [1, 1, 1, 1])


def test_a_longer_turn_of_a_chat_replaces_the_partial_page_of_the_last_one() -> None:
    cache = make()
    remember(cache, [1, 1, 1, 1, 2, 2])
    remember(cache, [1, 1, 1, 1, 2, 2, 3, 3, 3])
    assert cache.counts().cached == 3
    assert cache.peek(A, [1, 1, 1, 1, 2, 2, 3, 3, 3]) == 9


def test_flush_forgets_all_but_what_running_leases_use() -> None:
    cache = make()
    remember(cache, [1, 1, 1, 1, 2, 2, 2, 2])
    lease = cache.acquire(A, [1, 1, 1, 1, 9], max_tokens=4)
    assert cache.flush() == 1
    assert cache.peek(A, [1, 1, 1, 1, 2, 2, 2, 2]) == 4
    cache.release(lease, None)
    assert cache.flush() == 1
    assert cache.flush() == 0
    assert cache.counts() == PageCounts(free=16, cached=0, locked=0, held=0, total=16)
    assert cache.num_evicted_pages == 0


def test_more_tokens_than_pages_is_an_error_and_not_a_wrong_entry() -> None:
    cache = make()
    lease = start(cache, [1, 1, 1, 1])
    with pytest.raises(AssertionError, match="more tokens published"):
        cache.publish(lease, [1] * 8)
    with pytest.raises(AssertionError, match="more tokens released"):
        cache.release(lease, [1] * 5)
    assert cache.peek(A, [1] * 8) <= 4


def test_check_invariants_sees_a_lost_page() -> None:
    cache = make()
    lease = start(cache, [1, 1, 1, 1])
    lease.page_ids.pop()
    with pytest.raises(AssertionError, match="held pages"):
        cache.check_invariants()


def test_check_invariants_sees_a_page_exchanged_under_the_tree() -> None:
    cache = make()
    lease = start(cache, [1, 1, 1, 1, 2])
    cache.publish(lease, [1, 1, 1, 1])
    lease.page_ids[0], lease.page_ids[1] = lease.page_ids[1], lease.page_ids[0]
    with pytest.raises(AssertionError, match="cached and held"):
        cache.check_invariants()


def test_the_public_names_are_sorted_and_exist() -> None:
    assert prefix_cache.__all__ == sorted(prefix_cache.__all__)
    assert all(hasattr(prefix_cache, name) for name in prefix_cache.__all__)
