"""Pages of keys and values as opaque bytes: how they leave the device and come back.

An executor that can has a PageIo. The engine's loop calls it, between two steps.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Protocol

import numpy as np
import numpy.typing as npt

PageBytes = npt.NDArray[np.uint8]


class PageIo(Protocol):
    """Whole pages of all layers in the executor's own layout, which `kv_root` names."""

    @property
    def page_bytes(self) -> int:
        """Of one page, all layers."""

    @property
    def dtype(self) -> str:
        """Number format of the values: float32 or bfloat16."""

    @property
    def foreign_pages(self) -> AbstractSet[int]:
        """Pages that something else than this executor had a part in, so that `kv_root` does not
        name what they hold: they must not be kept."""

    def read(self, page_ids: Sequence[int]) -> PageBytes:
        """[P, page_bytes], a copy."""

    def write(self, page_ids: Sequence[int], pages: PageBytes) -> None:
        """pages: [P, page_bytes]. Raises: ValueError for another shape."""


class ArrayPageIo:
    """Implements PageIo over arrays in the host's memory, one for the keys and one for the values
    of each layer. arrays: uint8, all of one shape, pages along `page_axis`.

    Plain numpy in this one thread: torch would wake threads of its own, which then spin on the
    cores of the step's.
    """

    def __init__(
        self,
        arrays: Sequence[PageBytes],
        *,
        page_axis: int,
        dtype: str,
        foreign_pages: AbstractSet[int] = frozenset(),
    ) -> None:
        self._stores = [np.moveaxis(array, page_axis, 0) for array in arrays]
        self._row_shape = self._stores[0].shape[1:]
        self._row_bytes = int(np.prod(self._row_shape))
        self.dtype = dtype
        self.foreign_pages = foreign_pages

    @property
    def page_bytes(self) -> int:
        return len(self._stores) * self._row_bytes

    def read(self, page_ids: Sequence[int]) -> PageBytes:
        indices = np.array(page_ids, dtype=np.intp)
        pages = np.empty((len(indices), len(self._stores), *self._row_shape), np.uint8)
        for place, store in enumerate(self._stores):
            pages[:, place] = store[indices]
        return pages.reshape(len(indices), -1)

    def write(self, page_ids: Sequence[int], pages: PageBytes) -> None:
        check_shape(page_ids, pages, page_bytes=self.page_bytes)
        indices = np.array(page_ids, dtype=np.intp)
        rows = pages.reshape(len(indices), len(self._stores), *self._row_shape)
        for place, store in enumerate(self._stores):
            store[indices] = rows[:, place]


def check_shape(page_ids: Sequence[int], pages: PageBytes, *, page_bytes: int) -> None:
    """Raises: ValueError where `pages` are not so many whole pages."""
    if pages.shape != (len(page_ids), page_bytes) or pages.dtype != np.uint8:
        raise ValueError(
            f"{len(page_ids)} pages of {page_bytes} bytes expected, not {pages.shape} {pages.dtype}"
        )
