"""Buffers are used again, and never while somebody can see them."""

import numpy as np

from prefix_cache.tiers.buffers import BufferPool


def address(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).ctypes.data)


def test_a_buffer_comes_back_with_its_last_view() -> None:
    pool = BufferPool(buffer_bytes=1000, max_idle=2)
    lent = pool.take(10)
    first, page = address(lent), lent[100:200]
    array = np.frombuffer(page[10:20], np.uint8)
    del lent, page
    assert pool.num_idle == 0
    other = pool.take(10)
    assert address(other) != first
    del array
    assert pool.num_idle == 1
    assert address(pool.take(10)) == first


def test_no_more_than_some_are_kept_and_larger_ones_never() -> None:
    pool = BufferPool(buffer_bytes=1000, max_idle=2)
    lent = [pool.take(1000) for _ in range(5)]
    assert {len(view) for view in lent} == {1000}
    assert len({address(view) for view in lent}) == 5
    lent.clear()
    assert pool.num_idle == 2
    large = pool.take(1001)
    assert len(large) == 1001
    del large
    assert pool.num_idle == 2


def test_warm_buffers_are_there_before_they_are_taken_and_no_more_than_are_kept() -> None:
    pool = BufferPool(buffer_bytes=1000, max_idle=2)
    pool.warm(1)
    assert pool.num_idle == 1
    pool.warm(5)
    assert pool.num_idle == 2
    views = [pool.take(10), pool.take(10)]
    assert pool.num_idle == 0
    assert len(views[0]) == 1000
