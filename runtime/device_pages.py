"""Pages that lie in a GPU's memory as bytes on the host, and back (runtime.page_io.PageIo)."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import torch
from torch import Tensor

from runtime.page_io import PageBytes, check_shape


class DevicePageIo:
    """Over the stores of KvPages, [G, page, slot, d] each: the keys and the values of each layer.

    Pages are gathered on the device and cross the bus in one copy.
    """

    def __init__(self, stores: Sequence[Tensor]) -> None:
        self._stores = stores
        num_heads, _, page_size, head_dim = stores[0].shape
        self._row_shape = (num_heads, page_size, head_dim)
        self._row_bytes = num_heads * page_size * head_dim * stores[0].element_size()
        self.dtype = str(stores[0].dtype).removeprefix("torch.")
        self.foreign_pages: AbstractSet[int] = frozenset()

    @property
    def page_bytes(self) -> int:
        return len(self._stores) * self._row_bytes

    @torch.inference_mode()
    def read(self, page_ids: Sequence[int]) -> PageBytes:
        indices = self._indices(page_ids)
        # [P, stores, G, slot, d]
        pages = torch.stack(
            [store.index_select(1, indices).transpose(0, 1) for store in self._stores], dim=1
        )
        flat: PageBytes = pages.view(torch.uint8).reshape(len(page_ids), -1).cpu().numpy()
        return flat

    @torch.inference_mode()
    def write(self, page_ids: Sequence[int], pages: PageBytes) -> None:
        check_shape(page_ids, pages, page_bytes=self.page_bytes)
        first = self._stores[0]
        rows = torch.from_numpy(pages).to(first.device).view(first.dtype)
        rows = rows.reshape(len(page_ids), len(self._stores), *self._row_shape)
        indices = self._indices(page_ids)
        for place, store in enumerate(self._stores):
            store.index_copy_(1, indices, rows[:, place].transpose(0, 1))

    def _indices(self, page_ids: Sequence[int]) -> Tensor:
        return torch.tensor(page_ids, dtype=torch.long, device=self._stores[0].device)
