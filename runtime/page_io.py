"""Pages of keys and values as opaque bytes: how they leave the device and come back.

An executor that can has a PageIo. The engine's loop calls it, between two steps.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt


class PageIo(Protocol):
    """Whole pages of all layers in the executor's own layout, which `kv_root` names."""

    @property
    def page_bytes(self) -> int:
        """Of one page, all layers."""

    @property
    def dtype(self) -> str:
        """Number format of the values: float32 or bfloat16."""

    def read(self, page_ids: Sequence[int]) -> npt.NDArray[np.uint8]:
        """[P, page_bytes], a copy."""

    def write(self, page_ids: Sequence[int], pages: npt.NDArray[np.uint8]) -> None:
        """pages: [P, page_bytes]. Raises: ValueError for another shape."""
