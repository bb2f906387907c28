"""What the log of evictions finds again, and that it stays within its bounds."""

import struct
from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from prefix_cache.evicted_log import EvictedLog, EvictedRun

SPACE = b"namespace"
PARENT = 17


def packed(*token_ids: int) -> bytes:
    return struct.pack(f">{len(token_ids)}I", *token_ids)


def log_of(*pages: Iterable[int], max_runs: int = 100, max_bytes: int = 10**6) -> EvictedLog:
    """A log of one eviction a millisecond, all behind one place; the n-th of n pages."""
    times = iter(range(0, 10**12, 10**6))
    log = EvictedLog(max_runs=max_runs, max_bytes=max_bytes, clock_ns=lambda: next(times))
    for index, page in enumerate(pages):
        log.evicted(
            SPACE,
            PARENT,
            first_page=packed(*page),
            num_pages=index,
            cause="quota",
            for_owner="",
        )
    return log


def test_a_page_is_found_with_when_and_what_for() -> None:
    found = log_of([1, 2], [1, 3], [2, 2]).find(SPACE, PARENT, packed(1, 3))
    assert found is not None
    assert found.run == EvictedRun(10**6, "quota", num_pages=1)
    assert (found.first_page, found.num_shared) == (packed(1, 3), 2)


def test_a_page_is_found_at_its_place_only() -> None:
    log = log_of([1, 2])
    assert log.find(b"other", PARENT, packed(1, 2)) is None
    assert log.find(SPACE, PARENT + 1, packed(1, 2)) is None
    assert log.find(SPACE, PARENT, packed(2, 1)) is None


def test_a_page_that_goes_again_is_told_with_its_last_time() -> None:
    log = log_of([1, 2], [5], [1, 2])
    assert len(log) == 2
    found = log.find(SPACE, PARENT, packed(1, 2))
    assert found is not None
    assert found.run.num_pages == 2


def test_the_oldest_runs_are_forgotten_first_and_a_repeated_one_is_young() -> None:
    log = log_of([1], [2], [1], [3], max_runs=2)
    assert len(log) == 2
    assert [log.find(SPACE, PARENT, packed(k)) is not None for k in (1, 2, 3)] == [
        True,
        False,
        True,
    ]


def test_memory_is_bounded_in_bytes_and_given_back() -> None:
    log = log_of(*([k] * 50 for k in range(1000)), max_runs=10**6, max_bytes=20_000)
    assert log.num_bytes <= 20_000
    assert len(log) == 20_000 // (400 + 200)
    assert sum(map(len, log._pages.values())) == len(log._runs) == len(log)


tokens = st.lists(st.integers(0, 2), min_size=1, max_size=4)


@given(st.lists(tokens, min_size=1, max_size=12), tokens)
@settings(derandomize=True, max_examples=200)
def test_what_is_found_shares_most_of_all(pages: list[list[int]], wanted: list[int]) -> None:
    def shared(page: list[int]) -> int:
        pairs = zip(page, wanted, strict=False)
        return next((k for k, (a, b) in enumerate(pairs) if a != b), min(len(page), len(wanted)))

    found = log_of(*pages).find(SPACE, PARENT, packed(*wanted))
    assert (0 if found is None else found.num_shared) == max(map(shared, pages))
