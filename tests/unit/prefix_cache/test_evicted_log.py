"""What the log of evictions finds again, and that it stays within its bounds."""

import struct
import tracemalloc
from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from prefix_cache.evicted_log import MAX_RUNS, EvictedLog, EvictedRun

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


def found(log: EvictedLog, *next_tokens: int, num_known: int = 0) -> EvictedRun | None:
    return log.find(SPACE, PARENT, packed(*next_tokens), num_known=num_known)


def test_a_page_is_found_with_when_and_what_for() -> None:
    log = log_of([1, 2], [1, 3], [2, 2])
    assert found(log, 1, 3) == EvictedRun(10**6, "quota", num_pages=1)


def test_a_page_is_found_at_its_place_only() -> None:
    log = log_of([1, 2])
    assert log.find(b"other", PARENT, packed(1, 2), num_known=0) is None
    assert log.find(SPACE, PARENT + 1, packed(1, 2), num_known=0) is None
    assert found(log, 2, 1) is None
    assert (log.has(SPACE), log.has(b"other")) == (True, False)


def test_a_page_that_only_begins_alike_would_not_have_helped() -> None:
    log = log_of([1, 2, 3, 4], [5, 6])
    assert found(log, 1, 2, 9, 9) is None
    assert found(log, 1, 2, 3) == EvictedRun(0, "quota", num_pages=0)
    assert found(log, 5, 6, 7, 8) == EvictedRun(10**6, "quota", num_pages=1)
    assert found(log, 5, 7, 8, 9) is None


def test_a_partial_page_is_told_where_it_has_more_than_is_known_elsewhere() -> None:
    log = log_of([5], [5, 6], [5, 6, 7])
    assert [found(log, 5, 6, 9, 9, num_known=known) for known in (0, 1, 2)] == [
        EvictedRun(10**6, "quota", num_pages=1),
        EvictedRun(10**6, "quota", num_pages=1),
        None,
    ]


def test_a_page_that_goes_again_is_told_with_its_last_time() -> None:
    log = log_of([1, 2], [5], [1, 2])
    assert found(log, 1, 2) == EvictedRun(2 * 10**6, "quota", num_pages=2)


def test_the_oldest_runs_are_forgotten_first_and_a_repeated_one_is_young() -> None:
    log = log_of([1], [2], [1], [3], max_runs=2)
    assert len(log) == 2
    assert [found(log, k) is not None for k in (1, 2, 3)] == [True, False, True]


def test_memory_is_bounded_in_bytes_and_given_back() -> None:
    log = log_of(*([k] * 50 for k in range(1000)), max_runs=10**6, max_bytes=20_000)
    assert log.num_bytes <= 20_000
    assert len(log) == 20_000 // (800 + 200)
    assert list(log._runs) == [SPACE]
    assert len(log._runs[SPACE][PARENT]) == len(log)
    log.evicted(b"large", 0, first_page=bytes(20_000), num_pages=1, cause="flush", for_owner="")
    assert (len(log), log.num_bytes, log._runs) == (0, 0, {})


def test_its_estimate_of_its_memory_is_no_less_than_what_it_takes() -> None:
    tracemalloc.start()
    try:
        log = EvictedLog()
        for k in range(2 * MAX_RUNS):  # each at a place, and in a namespace, of its own
            log.evicted(
                k.to_bytes(32), 2**60 + k, first_page=packed(*[k] * 16), num_pages=1,
                cause="flush", for_owner="",
            )  # fmt: skip
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(log) == MAX_RUNS
    assert taken / 2 < log.num_bytes
    assert taken < 1.1 * log.num_bytes


tokens = st.lists(st.integers(0, 2), min_size=1, max_size=4)


@given(st.lists(tokens, min_size=1, max_size=12), tokens, st.integers(0, 3))
@settings(derandomize=True, max_examples=300)
def test_what_is_found_would_have_helped_most(
    pages: list[list[int]], wanted: list[int], num_known: int
) -> None:
    num_known = min(num_known, len(wanted) - 1)
    whole = [page for page in pages if page[: len(wanted)] == wanted]
    parts = [page for page in pages if page == wanted[: len(page)] and len(page) > num_known]
    best = whole or sorted(parts, key=len)[-1:]
    told = found(log_of(*pages), *wanted, num_known=num_known)
    assert (told is not None) == bool(best)
    if told is not None:
        assert pages[told.num_pages] in best
