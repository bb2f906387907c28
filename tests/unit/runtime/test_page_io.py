"""Pages leave the device as bytes and come back to other places, the same to the last bit."""

import numpy as np
import pytest
import torch

from runtime.device_pages import DevicePageIo
from runtime.kv_pages import KvPages, page_bytes
from runtime.page_io import PageIo
from tests.unit.runtime.test_kv_pages import SPEC

DTYPES = [torch.float32, torch.bfloat16]


def random_pages(dtype: torch.dtype, *, num_pages: int = 6) -> KvPages:
    pages = KvPages(SPEC, num_pages=num_pages, page_size=4, dtype=dtype, device=torch.device("cpu"))
    for store in (*pages.keys, *pages.values):
        store.copy_(torch.randn(store.shape, generator=torch.Generator().manual_seed(7)))
    return pages


def on_device(pages: KvPages) -> PageIo:
    """What a GPU's pages get, here over the host's memory."""
    pairs = zip(pages.keys, pages.values, strict=True)
    return DevicePageIo([store for pair in pairs for store in pair])


@pytest.mark.parametrize("dtype", DTYPES)
def test_pages_have_the_size_that_the_pool_counts(dtype: torch.dtype) -> None:
    pages = random_pages(dtype)
    assert pages.page_io().page_bytes == page_bytes(SPEC, page_size=4, dtype=dtype)
    assert on_device(pages).page_bytes == pages.page_io().page_bytes
    assert f"torch.{pages.page_io().dtype}" == f"torch.{on_device(pages).dtype}" == str(dtype)


@pytest.mark.parametrize("make_io", [KvPages.page_io, on_device])
@pytest.mark.parametrize("dtype", DTYPES)
def test_pages_come_back_to_other_places(make_io: object, dtype: torch.dtype) -> None:
    assert callable(make_io)
    source, target = random_pages(dtype), random_pages(dtype)
    for store in (*target.keys, *target.values):
        store.zero_()
    left = make_io(source).read([4, 1])
    make_io(target).write([0, 5], left)
    for before, after in zip(source.keys + source.values, target.keys + target.values, strict=True):
        assert torch.equal(after[:, 0], before[:, 4])
        assert torch.equal(after[:, 5], before[:, 1])
        assert not after[:, 1:5].any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_gpus_pages_have_the_bytes_of_the_hosts(dtype: torch.dtype) -> None:
    pages = random_pages(dtype)
    assert np.array_equal(pages.page_io().read([2, 3, 0]), on_device(pages).read([2, 3, 0]))


def test_what_was_read_stays_when_the_page_is_written_again() -> None:
    pages = random_pages(torch.float32)
    left = pages.page_io().read([1])
    before = left.copy()
    for store in (*pages.keys, *pages.values):
        store.zero_()
    assert np.array_equal(left, before)


@pytest.mark.parametrize("make_io", [KvPages.page_io, on_device])
def test_bytes_of_another_shape_are_no_pages(make_io: object) -> None:
    assert callable(make_io)
    io = make_io(random_pages(torch.float32))
    for shape in ((1, io.page_bytes), (2, io.page_bytes - 4)):
        with pytest.raises(ValueError, match=r"2 pages of \d+ bytes expected"):
            io.write([0, 1], np.zeros(shape, np.uint8))
