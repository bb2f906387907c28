"""The pool of page ids. Owns which pages are free; who uses the others is not its business."""

from array import array
from collections.abc import Iterable


class PagePool:
    """Page ids 0 to num_pages - 1. The page freed last is allocated first: it may be in a cache."""

    def __init__(self, num_pages: int) -> None:
        if num_pages < 1:
            raise ValueError(f"num_pages is {num_pages}, expected at least 1")
        self.num_pages = num_pages
        self._free = array("I", range(num_pages - 1, -1, -1))
        self._is_free = bytearray(b"\x01") * num_pages

    @property
    def num_free(self) -> int:
        return len(self._free)

    def is_free(self, page_id: int) -> bool:
        return bool(self._is_free[page_id])

    def next_free(self, num_pages: int) -> list[int]:
        """The pages that are allocated next, at most so many; they stay free."""
        return self._free[: -num_pages - 1 : -1].tolist()

    def allocate(self, num_pages: int) -> list[int]:
        """Takes pages out of the pool. The caller has checked that so many are free."""
        assert 0 <= num_pages <= len(self._free), (num_pages, len(self._free))
        page_ids = [self._free.pop() for _ in range(num_pages)]
        for page_id in page_ids:
            self._is_free[page_id] = 0
        return page_ids

    def free(self, page_ids: Iterable[int]) -> None:
        for page_id in page_ids:
            assert not self._is_free[page_id], f"page {page_id} freed twice"
            self._is_free[page_id] = 1
            self._free.append(page_id)

    def check_invariants(self) -> None:
        """Raises AssertionError where the free list and the flags differ."""
        assert len(set(self._free)) == len(self._free), "a page is in the free list twice"
        assert sum(self._is_free) == len(self._free), "flags and free list differ in number"
        assert all(self._is_free[page_id] for page_id in self._free), "a free page has no flag"
