"""Pages in host memory: what is kept, what goes, and how much memory that takes."""

import gc
import threading
import tracemalloc

from prefix_cache.tiers.host_tier import ENTRY_BYTES, HostTier
from prefix_cache.tiers.tier import PageKey, PageTier, StoredPage
from tests.tier_pages import PAGE_SIZE, key_of, page_of, payload_of

PAGE_BYTES = ENTRY_BYTES + 4 * PAGE_SIZE + 256


def tier_for(num_pages: int) -> HostTier:
    return HostTier(max_bytes=num_pages * PAGE_BYTES)


def kept(tier: HostTier, numbers: range) -> list[int]:
    return [number for number in numbers if tier.count_leading([key_of(number)])]


def test_pages_come_back_up_to_the_first_that_is_missing() -> None:
    tier: PageTier = tier_for(4)
    tier.store([page_of(1), page_of(2), page_of(4)])
    keys = [key_of(number) for number in (1, 2, 3, 4)]
    assert tier.fetch(keys) == [payload_of(1), payload_of(2)]
    assert tier.count_leading(keys) == 2
    assert (tier.counts.num_fetched, tier.counts.fetched_bytes) == (2, 512)
    assert (tier.counts.num_found, tier.counts.num_missing) == (2, 2)


def test_the_cap_holds_with_the_page_that_is_being_stored() -> None:
    tier = HostTier(max_bytes=3 * PAGE_BYTES - 1)
    tier.store([page_of(1)])
    tier.store([page_of(2)])
    tier.store([page_of(3)])
    assert kept(tier, range(5)) == [2, 3]
    assert tier.num_bytes == 2 * PAGE_BYTES
    assert tier.num_pages == 2


def test_a_page_larger_than_the_cap_is_dropped_and_counted_and_costs_no_other_page() -> None:
    tier = tier_for(1)
    tier.store([page_of(1)])
    tier.store([page_of(2, num_bytes=257)])
    assert kept(tier, range(5)) == [1]
    assert tier.counts.dropped == {"too_large": 1}


def test_least_recently_fetched_pages_go_first() -> None:
    tier = tier_for(3)
    for number in (1, 2, 3):
        tier.store([page_of(number)])
    tier.fetch([key_of(1)])
    tier.store([page_of(4)])
    assert kept(tier, range(5)) == [1, 3, 4]


def test_storing_and_touching_a_page_that_is_there_keeps_it() -> None:
    tier = tier_for(3)
    tier.store([page_of(1)])
    tier.store([page_of(2)])
    tier.store([page_of(3)])
    tier.store([page_of(1)])
    tier.touch([key_of(2).identity, key_of(9).identity])
    tier.store([page_of(4)])
    assert kept(tier, range(5)) == [1, 2, 4]
    assert tier.counts.num_stored == 4


def test_of_a_sequence_the_end_goes_before_the_beginning() -> None:
    tier = tier_for(3)
    tier.store([page_of(number) for number in (1, 2, 3)])
    tier.store([page_of(4)])
    assert kept(tier, range(5)) == [1, 2, 4]
    tier.fetch([key_of(1), key_of(2)])
    tier.store([page_of(5)])
    tier.store([page_of(6)])
    assert kept(tier, range(7)) == [1, 5, 6]


def test_of_a_batch_that_is_too_long_the_beginning_stays() -> None:
    tier = tier_for(3)
    tier.store([page_of(number) for number in range(6)])
    assert kept(tier, range(6)) == [0, 1, 2]


def test_other_tokens_under_the_same_identity_are_rejected_and_counted() -> None:
    tier = tier_for(2)
    tier.store([page_of(1)])
    assert tier.fetch([PageKey(key_of(1).identity, key_of(2).tokens)]) == []
    assert tier.counts.rejected == {"tokens": 1}


def test_payloads_are_copies() -> None:
    tier = tier_for(2)
    buffer = bytearray(payload_of(1))
    tier.store([StoredPage(key_of(1), memoryview(buffer))])
    buffer[:] = bytes(len(buffer))
    assert tier.fetch([key_of(1)]) == [payload_of(1)]


def test_pages_are_forgotten_by_name_or_all() -> None:
    tier = tier_for(4)
    tier.store([page_of(number) for number in range(4)])
    tier.forget([key_of(2).identity, key_of(7).identity])
    assert kept(tier, range(5)) == [0, 1, 3]
    assert tier.num_bytes == 3 * PAGE_BYTES
    tier.forget(None)
    assert (tier.num_pages, tier.num_bytes) == (0, 0)


def test_memory_that_python_counts_stays_within_the_cap() -> None:
    max_bytes = 400_000
    gc.collect()
    tracemalloc.start()
    try:
        tier = HostTier(max_bytes=max_bytes)
        for number in range(2_000):
            page = page_of(number, num_bytes=128)
            tier.store([StoredPage(page.key, memoryview(bytearray(page.payload)))])
        del page
        gc.collect()
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert max_bytes / 2 < used < max_bytes
    assert tier.num_pages > 500


def test_threads_store_fetch_and_forget_at_once() -> None:
    tier = tier_for(20)
    wrong: list[int] = []

    def work(start: int) -> None:
        for number in range(start, start + 400):
            tier.store([page_of(number % 50)])
            for found in tier.fetch([key_of(number * 7 % 50)]):
                if found != payload_of(number * 7 % 50):
                    wrong.append(number)
            if number % 20 == 0:
                tier.forget([key_of(number % 50).identity])

    threads = [threading.Thread(target=work, args=(start,)) for start in (0, 13, 31)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert tier.num_bytes == tier.num_pages * PAGE_BYTES <= 20 * PAGE_BYTES
    assert tier.counts.num_fetched > 0
