"""The tensors that hold keys and values: their shape, memory, and copies between pages.

Layout: [G, page, slot, d] a layer (G key-value heads, d head size). Attention backends read and
write them; nobody else does.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from runtime.batch import PageCopy
from runtime.decoder_spec import DecoderSpec
from runtime.device_pages import DevicePageIo
from runtime.hardware import allocate_zeroed
from runtime.page_io import ArrayPageIo, PageIo

LAYOUT_VERSION = 1  # goes up when the order of bytes inside a page changes


def page_bytes(spec: DecoderSpec, *, page_size: int, dtype: torch.dtype) -> int:
    """Memory of one page over all layers."""
    per_token = 2 * spec.num_layers * spec.num_kv_heads * spec.head_dim
    return per_token * page_size * dtype.itemsize


class KvPages:
    """Keys and values of all layers."""

    def __init__(
        self,
        spec: DecoderSpec,
        *,
        num_pages: int,
        page_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        # Heads first: picked pages are contiguous for each head, so no permute follows the gather
        # (two cores, bfloat16: 16 rows of 384 tokens gather in 0.1 ms a layer, matmuls take 0.17).
        shape = (spec.num_kv_heads, num_pages, page_size, spec.head_dim)
        # Zeroed, as masked slots still enter a product: 0 * NaN would be NaN.
        self.keys = [allocate_zeroed(shape, dtype, device=device) for _ in spec.layers]
        self.values = [allocate_zeroed(shape, dtype, device=device) for _ in spec.layers]

    def copy_slots(self, copies: Iterable[PageCopy]) -> None:
        """Copies the first slots of pages in all layers."""
        for copy in copies:
            for store in (*self.keys, *self.values):
                source = store[:, copy.source, : copy.num_slots]
                store[:, copy.target, : copy.num_slots] = source

    def page_io(self) -> PageIo:
        """Reads and writes whole pages as bytes: keys, then values of each layer in turn."""
        pairs = zip(self.keys, self.values, strict=True)
        stores = [store for pair in pairs for store in pair]
        if stores[0].device.type != "cpu":
            return DevicePageIo(stores)
        arrays = [store.view(torch.uint8).numpy() for store in stores]
        dtype = str(stores[0].dtype).removeprefix("torch.")
        return ArrayPageIo(arrays, page_axis=1, dtype=dtype)

    def read(self, layer: int, pages: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of whole pages, [P, page_size, G, d] float32 each. pages: [P] long."""
        keys, values = (
            store.index_select(1, pages).permute(1, 2, 0, 3).float().contiguous()
            for store in (self.keys[layer], self.values[layer])
        )
        return keys, values

    def write(self, layer: int, slots: Tensor, *, k: Tensor, v: Tensor) -> None:
        """k and v: [N, G, d] to the flat slots [N]. A slot that occurs twice gets either."""
        for store, new in ((self.keys[layer], k), (self.values[layer], v)):
            flat = store.view(store.shape[0], -1, store.shape[-1])
            flat.index_copy_(1, slots, new.transpose(0, 1))
