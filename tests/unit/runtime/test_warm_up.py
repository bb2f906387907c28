"""Memory for the first pages of the pool, taken in idle time."""

from collections.abc import Sequence

import numpy as np
import pytest

from prefix_cache import PrefixCache
from runtime import warm_up
from runtime.page_io import ArrayPageIo, PageBytes
from runtime.warm_up import PIECE_NS, WarmUp

PAGE_NS = 2_000_000


class Bench:
    """A pool of ten pages of 8 bytes, of which six are to be warm."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.written: list[int] = []
        self.cache = PrefixCache(num_pages=10, page_size=4)
        bench = self

        class CostlyPageIo(ArrayPageIo):
            def write(self, page_ids: Sequence[int], pages: PageBytes) -> None:
                bench.now_ns += PAGE_NS
                bench.written += page_ids
                super().write(page_ids, pages)

        arrays = [np.full((10, 4), 7, np.uint8) for _ in range(2)]
        self.page_io: CostlyPageIo | None = CostlyPageIo(arrays, page_axis=0, dtype="bfloat16")
        self.warm_up = WarmUp(
            self.cache, page_io=lambda: self.page_io, clock_ns=lambda: self.now_ns
        )


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(warm_up, "WARM_BYTES", 6 * 8)
    return Bench()


def warm(bench: Bench) -> None:
    while bench.warm_up.idle():
        assert bench.now_ns <= PIECE_NS + PAGE_NS
        bench.now_ns = 0


def test_pieces_are_short_and_the_pages_are_those_that_come_first(bench: Bench) -> None:
    warm(bench)
    assert len(set(bench.written)) == len(bench.written) == 6
    assert bench.cache.counts().free == 10
    lease = bench.cache.acquire(b"", [1] * 40, max_tokens=39)
    assert set(bench.cache.extend(lease, 6)) == set(bench.written)
    bench.cache.release(lease, None)
    assert not bench.warm_up.idle()
    assert len(bench.written) == 6


def test_what_was_taken_is_made_up_for_and_nothing_is_written_twice(bench: Bench) -> None:
    warm(bench)
    lease = bench.cache.acquire(b"", range(40), max_tokens=39)
    bench.cache.extend(lease, 3)
    warm(bench)
    assert len(set(bench.written)) == len(bench.written) == 9
    bench.cache.release(lease, None)
    warm(bench)
    assert len(bench.written) == 9


def test_pages_in_use_are_not_touched(bench: Bench) -> None:
    lease = bench.cache.acquire(b"", range(40), max_tokens=39)
    taken = bench.cache.extend(lease, 8)
    bench.cache.release(lease, range(32))
    warm(bench)
    assert set(bench.written) == set(range(10)) - set(taken)
    assert bench.cache.counts().cached == 8
    bench.cache.check_invariants()


def test_it_waits_for_a_way_to_write(bench: Bench) -> None:
    page_io, bench.page_io = bench.page_io, None
    assert not bench.warm_up.idle()
    bench.page_io = page_io
    assert bench.warm_up.idle()
