"""Attention through torch's FlexAttention, straight over the page table: the backend for GPUs.

All of a step is tensors on the device, so that a decode step can be captured in a CUDA graph. On
the CPU the same code runs uncompiled and reads the whole pool: for tests. Letters: N new tokens of
the step, M rows with padding, B blocks of Q queries of one sequence, W pages of a page table,
H and G query and key-value heads, d head size.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from runtime.batch import PageCopy, ScheduledBatch, ScheduledRow
from runtime.decoder_spec import DecoderSpec
from runtime.hardware import IntArray, to_device
from runtime.kv_pages import KvPages
from runtime.page_io import PageIo
from runtime.row_buckets import round_up_to_bucket

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import FlexKernelOptions

PREFILL_BLOCK_LEN = 64
# FlexAttention tiles its queries by 16 at least, and its blocks must be a multiple of a tile.
_DECODE_MASK_BLOCK = 128


@dataclass(frozen=True, slots=True)
class VisiblePages:
    """What blocks read in layers of one window.

    oldest: [B, Q] int32, the first position that a query sees; pages: [B, W] int32, of which the
    first num_pages [B] (int32) are read.
    """

    oldest: Tensor
    pages: Tensor
    num_pages: Tensor


@dataclass(frozen=True, slots=True)
class QueryBlocks:
    """Blocks of one size. A block's padding repeats its last query, a padding block is one token
    in the scratch page.

    token_index: [B * Q] long, where the queries are in the step; slots: [B * Q] long, where their
    keys are written; positions: [B, Q] int32; logical_pages: [B, pages + 2] int32, the place of
    each page in the block's sequence, -1 where it is not one of its pages.
    """

    token_index: Tensor
    slots: Tensor
    positions: Tensor
    logical_pages: Tensor
    by_window: Mapping[int | None, VisiblePages]


@dataclass(frozen=True, slots=True)
class FlexPlan:
    """places: [N] long, where each token is among the queries of all `groups`."""

    groups: tuple[QueryBlocks, ...]
    places: Tensor


@dataclass(frozen=True, slots=True)
class BlockInputs:
    """Blocks on the host: token_index and positions: [B, Q], page_table: [B, W]."""

    token_index: IntArray
    positions: IntArray
    page_table: IntArray


class Attend(Protocol):
    """attend_pages, or what a compiler made of it."""

    def __call__(
        self,
        q: Tensor,
        keys: Tensor,
        values: Tensor,
        *,
        blocks: tuple[Tensor, Tensor],
        visible: tuple[Tensor, Tensor, Tensor],
        page_size: int,
        scale: float,
        softcap: float | None,
    ) -> Tensor: ...


def attend_pages(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    blocks: tuple[Tensor, Tensor],
    visible: tuple[Tensor, Tensor, Tensor],
    page_size: int,
    scale: float,
    softcap: float | None,
) -> Tensor:
    """q: [B, H, Q, d], keys and values: [1, G, slots, d] -> [B, H, Q, d].

    blocks: `positions` and `logical_pages` of QueryBlocks; visible: `oldest`, `pages` and
    `num_pages` of VisiblePages. Plain tensors, so that a compiler sees all that may change.
    """
    positions, logical_pages = blocks
    oldest, pages, num_pages = visible
    is_decode = q.shape[2] == 1

    def sees(block: Tensor, _head: Tensor, query: Tensor, slot: Tensor) -> Tensor:
        logical = logical_pages[block, slot // page_size]
        position = logical * page_size + slot % page_size
        in_time = (position <= positions[block, query]) & (position >= oldest[block, query])
        return (logical >= 0) & in_time

    def bend(score: Tensor, _b: Tensor, _h: Tensor, _q: Tensor, _slot: Tensor) -> Tensor:
        assert softcap is not None
        return softcap * torch.tanh(score / softcap)

    mask = BlockMask.from_kv_blocks(
        num_pages[:, None, None],
        pages[:, None, None],
        BLOCK_SIZE=(_DECODE_MASK_BLOCK if is_decode else q.shape[2], page_size),
        mask_mod=sees,
        seq_lengths=(q.shape[2], keys.shape[2]),
        compute_q_blocks=False,
    )
    attended = flex_attention(
        q,
        keys,
        values,
        score_mod=None if softcap is None else bend,
        block_mask=mask,
        scale=scale,
        enable_gqa=True,
        kernel_options=None if is_decode else _prefill_options(page_size),
    )
    assert isinstance(attended, Tensor)
    return attended


def _prefill_options(page_size: int) -> "FlexKernelOptions":
    """The kernel for few queries splits a row's pages over the processor and takes the heads of a
    group together; prompts go to the other one. A tile of keys lies within a page."""
    return {
        "FORCE_USE_FLEX_ATTENTION": True,
        "BLOCK_M": PREFILL_BLOCK_LEN,
        "BLOCK_N": page_size,
    }


class FlexPagedAttention:
    """The KV pages of all layers, one of them (`scratch_page`) for padding, and attention."""

    def __init__(
        self,
        spec: DecoderSpec,
        *,
        num_pages: int,
        page_size: int,
        max_model_len: int,
        dtype: torch.dtype,
        device: torch.device,
        attend: Attend = attend_pages,
    ) -> None:
        self._spec = spec
        self._page_size = page_size
        self._device = device
        self._attend = attend
        self.scratch_page = num_pages
        self.table_width = -(-max_model_len // page_size)
        self._pages = KvPages(
            spec, num_pages=num_pages + 1, page_size=page_size, dtype=dtype, device=device
        )

    @property
    def num_layers(self) -> int:
        return self._spec.num_layers

    def page_io(self) -> PageIo:
        return self._pages.page_io()

    def copy_slots(self, copies: Iterable[PageCopy]) -> None:
        self._pages.copy_slots(copies)

    def read_pages(self, layer: int, pages: Tensor) -> tuple[Tensor, Tensor]:
        return self._pages.read(layer, pages)

    def plan(self, batch: ScheduledBatch) -> FlexPlan:
        decode: list[tuple[int, ScheduledRow]] = []
        prefill: list[tuple[int, ScheduledRow]] = []
        first_token = 0
        for row in batch.rows:
            (decode if len(row.token_ids) == 1 else prefill).append((first_token, row))
            first_token += len(row.token_ids)
        groups, places, num_queries = [], np.zeros(first_token, dtype=np.int64), 0
        for rows, block_len in ((decode, 1), (prefill, PREFILL_BLOCK_LEN)):
            if rows:
                inputs = self._block_inputs(rows, block_len)
                queries = inputs.token_index.reshape(-1)
                # A padding query names a token too; the first that does is the token's own.
                tokens, first_places = np.unique(queries[queries >= 0], return_index=True)
                places[tokens] = num_queries + first_places
                num_queries += len(queries)
                groups.append(self._upload(inputs))
        return FlexPlan(groups=tuple(groups), places=to_device(places, self._device))

    def plan_decode(self, positions: Tensor, page_table: Tensor) -> FlexPlan:
        """Of a step whose token i is the only one of row i. positions: [B], page_table: [B, W],
        both int32 on the device; nothing here waits for it."""
        token_index = torch.arange(positions.shape[0], device=self._device)
        # One layout, that of `plan`, so that one compilation serves both.
        group = self._plan_group(token_index, positions[:, None].contiguous(), page_table)
        return FlexPlan(groups=(group,), places=token_index)

    def run(self, plan: FlexPlan, layer: int, *, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        for group in plan.groups:
            new_k, new_v = (new.index_select(0, group.token_index) for new in (k, v))
            self._pages.write(layer, group.slots, k=new_k, v=new_v)
        outputs = [self._attend_group(group, layer, q) for group in plan.groups]
        attended = torch.cat(outputs).index_select(0, plan.places)
        return F.pad(attended, (0, 0, 0, q.shape[0] - attended.shape[0]))

    def _attend_group(self, group: QueryBlocks, layer: int, q: Tensor) -> Tensor:
        """q: [M, H, d] of the whole step -> [B * Q, H * d]."""
        num_blocks, block_len = group.positions.shape
        num_groups, head_dim = self._spec.num_kv_heads, q.shape[-1]
        by_group = q.index_select(0, group.token_index).view(
            num_blocks, block_len, num_groups, -1, head_dim
        )
        group_size = by_group.shape[3]
        if block_len == 1:  # the kernel for few queries takes heads by powers of two
            padding = (1 << (group_size - 1).bit_length()) - group_size
            by_group = F.pad(by_group, (0, 0, 0, padding))
        reads = group.by_window[self._spec.layers[layer].window]
        attended = self._attend(
            by_group.flatten(2, 3).transpose(1, 2),
            self._pages.keys[layer].flatten(1, 2)[None],
            self._pages.values[layer].flatten(1, 2)[None],
            blocks=(group.positions, group.logical_pages),
            visible=(reads.oldest, reads.pages, reads.num_pages),
            page_size=self._page_size,
            scale=self._spec.attention_scale,
            softcap=self._spec.attention_softcap,
        )
        heads = attended.transpose(1, 2).reshape(by_group.shape)[:, :, :, :group_size]
        return heads.reshape(num_blocks * block_len, -1)

    def _block_inputs(
        self, rows: Sequence[tuple[int, ScheduledRow]], block_len: int
    ) -> BlockInputs:
        """token_index is -1 in padding blocks."""
        offsets = np.arange(block_len)
        blocks = [
            (first_token, row, np.minimum(start + offsets, len(row.token_ids) - 1))
            for first_token, row in rows
            for start in range(0, len(row.token_ids), block_len)
        ]
        num_blocks = round_up_to_bucket(len(blocks))
        token_index = np.full((num_blocks, block_len), -1, dtype=np.int64)
        positions = np.zeros((num_blocks, block_len), dtype=np.int32)
        page_table = np.full((num_blocks, self.table_width), self.scratch_page, dtype=np.int32)
        for index, (first_token, row, places) in enumerate(blocks):
            token_index[index] = first_token + places
            positions[index] = row.start + places
            num_pages = -(-(row.start + len(row.token_ids)) // self._page_size)
            page_table[index, :num_pages] = row.page_ids[:num_pages]
        return BlockInputs(token_index, positions, page_table)

    def _upload(self, inputs: BlockInputs) -> QueryBlocks:
        token_index = np.maximum(inputs.token_index.reshape(-1), 0)
        return self._plan_group(
            to_device(token_index, self._device),
            to_device(inputs.positions, self._device),
            to_device(inputs.page_table, self._device),
        )

    def _plan_group(
        self, token_index: Tensor, positions: Tensor, page_table: Tensor
    ) -> QueryBlocks:
        """positions: [B, Q], page_table: [B, W]; all on the device."""
        last_page = positions.amax(1, keepdim=True) // self._page_size  # [B, 1]
        columns = torch.arange(self.table_width, dtype=torch.int32, device=self._device)
        owned = columns <= last_page
        nowhere = self.scratch_page + 1
        logical_pages = torch.full(
            (positions.shape[0], nowhere + 1), -1, dtype=torch.int32, device=self._device
        )
        logical_pages.scatter_(
            1, torch.where(owned, page_table, nowhere).long(), torch.where(owned, columns, -1)
        )
        pages = page_table.gather(1, (positions // self._page_size).long())
        windows = dict.fromkeys(layer.window for layer in self._spec.layers)
        return QueryBlocks(
            token_index=token_index,
            slots=(pages * self._page_size + positions % self._page_size).long().view(-1),
            positions=positions,
            logical_pages=logical_pages,
            by_window={window: self._visible(positions, page_table, window) for window in windows},
        )

    def _visible(self, positions: Tensor, page_table: Tensor, window: int | None) -> VisiblePages:
        oldest = (
            torch.zeros_like(positions)
            if window is None
            else (positions + (1 - window)).clamp_(min=0)
        )
        first_page = oldest.amin(1, keepdim=True) // self._page_size  # [B, 1]
        columns = first_page + torch.arange(self.table_width, device=self._device)
        pages = page_table.gather(1, columns.clamp_(max=self.table_width - 1))
        num_pages = positions.amax(1) // self._page_size - first_page[:, 0] + 1
        return VisiblePages(oldest=oldest, pages=pages, num_pages=num_pages)
