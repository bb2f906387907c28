"""Arrays for pages that are used again."""

import numpy as np

from runtime.page_buffers import MAX_KEPT_BYTES, WARM_BYTES, PageBuffers


def memory_of(pages: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> int:
    return int(pages.__array_interface__["data"][0])


def test_an_array_that_was_given_back_is_used_again() -> None:
    buffers = PageBuffers(4, 100)
    first = buffers.take(3)
    assert first.shape == (3, 100)
    second = buffers.take(4)
    assert memory_of(second) != memory_of(first)
    place = memory_of(first)
    buffers.give_back(first)
    again = buffers.take(4)
    assert again.shape == (4, 100)
    assert memory_of(again) == place


def test_no_more_than_a_bound_is_kept() -> None:
    buffers = PageBuffers(1, MAX_KEPT_BYTES // 2)
    taken = [buffers.take(1) for _ in range(4)]
    for pages in taken:
        buffers.give_back(pages)
    assert len(buffers._free) == 2


def test_memory_can_be_had_in_advance() -> None:
    buffers = PageBuffers(2, WARM_BYTES // 8)
    buffers.warm()
    assert len(buffers._free) == 4
    huge = PageBuffers(1, 2 * WARM_BYTES)
    huge.warm()
    assert huge._free == []
