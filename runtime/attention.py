"""Attention over paged keys and values in plain torch: the backend for the CPU, and the reference.

Layers with a window keep all pages and read those of the window. Letters: H query heads, G
key-value heads, g = H / G, d head size, N new tokens of the step, B decode rows, P pages of a row,
T tokens.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from runtime.batch import PageCopy, ScheduledBatch, ScheduledRow
from runtime.decoder_spec import DecoderSpec
from runtime.kv_pages import KvPages
from runtime.page_io import PageIo

BLOCK_LEN = 64  # queries of a prompt attended at once: their scores stay in the cache
# A bfloat16 matmul pays for every shape it has not seen (some 0.8 ms), so shapes are rounded up.
KV_BUCKET = 64
ROW_BUCKET = 16
PAGE_BUCKET = 4
MIN_SHARED_PAGES = 4  # below this, reading a shared prefix once does not pay for the extra ops


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """Rows with one new token each that are computed together.

    | tokens of a row                       | read from                                  |
    | ------------------------------------- | ------------------------------------------ |
    | [0, len(shared_pages) * page_size)    | `shared_pages`, once for the whole group    |
    | the rest, or those of the window      | the row's line of `page_table`, padded      |

    token_index: [B] where each row's token is in the step; page_table: [B * P];
    excluded: [B, 1, T] bool, True at padding and before the window.
    """

    token_index: Tensor
    shared_pages: Tensor | None
    page_table: Tensor
    excluded: Tensor


@dataclass(frozen=True, slots=True)
class PrefillBlock:
    """Some neighbouring new tokens of a row, [first_token, first_token + num_tokens) of the step.

    | keys of the row's pages | seen by                                                        |
    | ----------------------- | -------------------------------------------------------------- |
    | [kv_start, num_seen)    | every token of the block                                       |
    | [num_seen, kv_len)      | those where `excluded` is False                                |

    excluded: [padded rows, 1, kv_len - num_seen].
    """

    first_token: int
    num_tokens: int
    kv_start: int
    num_seen: int
    kv_len: int
    excluded: Tensor


@dataclass(frozen=True, slots=True)
class PrefillRow:
    """A row with several new tokens. pages: [P], from the first that is read, padded; the blocks
    cover the new tokens."""

    pages: Tensor
    blocks: tuple[PrefillBlock, ...]


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """What layers of one window read in a step."""

    groups: tuple[DecodeGroup, ...]
    prefills: tuple[PrefillRow, ...]


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """Index tensors of one step. slots: [N] flat KV slots that every layer writes;
    `by_window`: what layers with that window (None = all tokens) read."""

    slots: Tensor
    by_window: Mapping[int | None, WindowPlan]


class PagedAttention:
    """The KV pages of all layers, and attention over them."""

    def __init__(
        self,
        spec: DecoderSpec,
        *,
        num_pages: int,
        page_size: int,
        dtype: torch.dtype,
        device: torch.device,
        share_prefixes: bool = True,
    ) -> None:
        self._spec = spec
        self._page_size = page_size
        self._device = device
        self._dtype = dtype
        self._share_prefixes = share_prefixes
        self._scale = spec.attention_scale
        self._pages = KvPages(
            spec, num_pages=num_pages, page_size=page_size, dtype=dtype, device=device
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

    def plan(self, batch: ScheduledBatch) -> AttentionPlan:
        longest = max((row.start + len(row.token_ids) for row in batch.rows), default=0)
        # A window that no row exceeds leaves nothing out.
        narrowed = {
            window: window if window is not None and window < longest else None
            for window in dict.fromkeys(layer.window for layer in self._spec.layers)
        }
        plans = {window: self._plan_window(batch, window) for window in set(narrowed.values())}
        return AttentionPlan(
            slots=self._indices([slot for row in batch.rows for slot in self._slots(row)]),
            by_window={window: plans[narrow] for window, narrow in narrowed.items()},
        )

    def run(self, plan: AttentionPlan, layer: int, *, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        num_tokens = plan.slots.shape[0]
        self._pages.write(layer, plan.slots, k=k[:num_tokens], v=v[:num_tokens])
        keys, values = self._pages.keys[layer], self._pages.values[layer]
        q = q * self._scale
        attended = torch.zeros_like(q)
        reads = plan.by_window[self._spec.layers[layer].window]
        for group in reads.groups:
            rows = self._decode(group, q.index_select(0, group.token_index), keys, values)
            attended.index_copy_(0, group.token_index, rows)
        for row in reads.prefills:
            outputs = self._prefill(row, q, keys, values)
            for block, output in zip(row.blocks, outputs, strict=True):
                attended[block.first_token : block.first_token + block.num_tokens] = output
        return attended.flatten(1)

    def _indices(self, values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=self._device)

    def _slots(self, row: ScheduledRow) -> Iterable[int]:
        size = self._page_size
        for position in range(row.start, row.start + len(row.token_ids)):
            yield row.page_ids[position // size] * size + position % size

    def _num_pages(self, row: ScheduledRow) -> int:
        return -(-(row.start + len(row.token_ids)) // self._page_size)

    def _plan_window(self, batch: ScheduledBatch, window: int | None) -> WindowPlan:
        decode: list[tuple[int, ScheduledRow]] = []
        prefills: list[PrefillRow] = []
        first_token = 0
        for row in batch.rows:
            if len(row.token_ids) == 1:
                decode.append((first_token, row))
            else:
                prefills.append(self._plan_prefill(row, first_token, window))
            first_token += len(row.token_ids)
        groups = self._group_rows(decode) if window is None else [(decode, 0)] if decode else []
        return WindowPlan(
            groups=tuple(self._plan_group(*group, window) for group in groups),
            prefills=tuple(prefills),
        )

    def _plan_prefill(self, row: ScheduledRow, first_token: int, window: int | None) -> PrefillRow:
        num_tokens = len(row.token_ids)
        first_page = _window_start(row.start, window) // self._page_size
        start = row.start - first_page * self._page_size
        kv_len = _round_up(start + num_tokens, KV_BUCKET)
        pages = row.page_ids[first_page : self._num_pages(row)]
        padding = -(-kv_len // self._page_size) - len(pages)
        return PrefillRow(
            pages=self._indices((*pages, *pages[:1] * padding)),
            blocks=tuple(
                self._plan_block(
                    first_token + offset,
                    num_tokens=min(BLOCK_LEN, num_tokens - offset),
                    position=start + offset,
                    window=window,
                )
                for offset in range(0, num_tokens, BLOCK_LEN)
            ),
        )

    def _plan_block(
        self, first_token: int, *, num_tokens: int, position: int, window: int | None
    ) -> PrefillBlock:
        """A block whose first token has this position in the row's pages."""
        kv_start = _window_start(position, window) // KV_BUCKET * KV_BUCKET
        kv_len = _round_up(position + num_tokens, KV_BUCKET)
        num_seen = position if window is None else kv_start
        num_rows = _round_up(num_tokens, ROW_BUCKET)
        keys = torch.arange(num_seen, kv_len, device=self._device)
        queries = torch.arange(position, position + num_rows, device=self._device)[:, None]
        excluded = keys > queries
        if window is not None:
            excluded |= keys <= queries - window
        return PrefillBlock(
            first_token=first_token,
            num_tokens=num_tokens,
            kv_start=kv_start,
            num_seen=num_seen,
            kv_len=kv_len,
            excluded=excluded[:, None],
        )

    def _group_rows(
        self, rows: list[tuple[int, ScheduledRow]]
    ) -> list[tuple[list[tuple[int, ScheduledRow]], int]]:
        """Rows to be computed together, and how many leading pages each group shares."""
        if not self._share_prefixes:
            return [(rows, 0)] if rows else []
        by_first_page: dict[int, list[tuple[int, ScheduledRow]]] = {}
        for entry in rows:
            by_first_page.setdefault(entry[1].page_ids[0], []).append(entry)
        groups, rest = [], []
        for members in by_first_page.values():
            num_shared = self._num_shared_pages([row for _, row in members])
            if len(members) > 1 and num_shared >= MIN_SHARED_PAGES:
                groups.append((members, num_shared))
            else:
                rest.extend(members)
        return groups + ([(rest, 0)] if rest else [])

    def _num_shared_pages(self, rows: list[ScheduledRow]) -> int:
        """Leading pages that all rows have and that every row had filled before this step."""
        num_full = min(row.start for row in rows) // self._page_size
        first = rows[0].page_ids
        for row in rows[1:]:
            while row.page_ids[:num_full] != first[:num_full]:
                num_full = _common_length(row.page_ids, first, limit=num_full)
        return num_full

    def _plan_group(
        self, members: list[tuple[int, ScheduledRow]], num_shared: int, window: int | None
    ) -> DecodeGroup:
        rows = [row for _, row in members]
        starts = [_window_start(row.start, window) for row in rows]
        firsts = [max(num_shared, start // self._page_size) for start in starts]
        own_pages = [
            row.page_ids[first : self._num_pages(row)]
            for row, first in zip(rows, firsts, strict=True)
        ]
        width = _round_up(max(len(pages) for pages in own_pages), PAGE_BUCKET)
        table: list[int] = []
        for pages in own_pages:
            table += (*pages, *[pages[0]] * (width - len(pages)))
        origins = self._indices(firsts)[:, None] * self._page_size
        positions = origins + torch.arange(width * self._page_size, device=self._device)
        excluded = positions > self._indices([row.start for row in rows])[:, None]
        if window is not None:
            excluded |= positions < self._indices(starts)[:, None]
        return DecodeGroup(
            token_index=self._indices([first_token for first_token, _ in members]),
            shared_pages=self._indices(rows[0].page_ids[:num_shared]) if num_shared else None,
            page_table=self._indices(table),
            excluded=excluded[:, None],
        )

    def _scores(self, q: Tensor, keys: Tensor) -> Tensor:
        """q: [..., n, d] scaled, keys: [..., T, d] -> [..., n, T] float32."""
        scores = torch.matmul(q, keys.transpose(-1, -2)).float()
        cap = self._spec.attention_softcap
        return scores if cap is None else cap * torch.tanh(scores / cap)

    def _decode(self, group: DecodeGroup, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """q: [B, H, d] -> [B, H, d]. The g query heads of a group become matmul rows."""
        num_rows, num_groups, head_dim = q.shape[0], self._spec.num_kv_heads, self._spec.head_dim
        q = q.view(num_rows, num_groups, -1, head_dim).transpose(0, 1)  # [G, B, g, d]
        own_shape = (num_groups, num_rows, -1, head_dim)
        own_keys = keys.index_select(1, group.page_table).view(own_shape)
        scores = self._scores(q, own_keys)
        scores.masked_fill_(group.excluded, float("-inf"))  # [G, B, g, T]
        own_values = values.index_select(1, group.page_table).view(own_shape)
        if group.shared_pages is None:
            weights = torch.softmax(scores, dim=-1).to(self._dtype)
            attended = torch.matmul(weights, own_values)
        else:
            attended = self._with_shared_prefix(
                group.shared_pages, q, keys, values, scores=scores, own_values=own_values
            )
        return attended.transpose(0, 1).reshape(num_rows, -1, head_dim)

    def _with_shared_prefix(
        self,
        pages: Tensor,
        q: Tensor,
        keys: Tensor,
        values: Tensor,
        *,
        scores: Tensor,
        own_values: Tensor,
    ) -> Tensor:
        """One softmax over [shared | own]; the shared keys meet all rows in one matmul."""
        num_groups, num_rows, _, head_dim = q.shape
        folded = q.reshape(num_groups, -1, head_dim)  # [G, B * g, d]
        shared_keys = keys.index_select(1, pages).flatten(1, 2)  # [G, S, d]
        shared_scores = self._scores(folded, shared_keys)
        shared_len = shared_scores.shape[-1]
        joined = torch.cat((shared_scores.view(*q.shape[:3], shared_len), scores), dim=-1)
        weights = torch.softmax(joined, dim=-1).to(self._dtype)
        on_shared, on_own = torch.split(weights, [shared_len, scores.shape[-1]], dim=-1)
        shared_values = values.index_select(1, pages).flatten(1, 2)
        from_shared = torch.matmul(on_shared.reshape(num_groups, -1, shared_len), shared_values)
        return from_shared.view(num_groups, num_rows, -1, head_dim) + torch.matmul(
            on_own, own_values
        )

    def _prefill(self, row: PrefillRow, q: Tensor, keys: Tensor, values: Tensor) -> list[Tensor]:
        """q: [M, H, d] of the whole step -> [n, H, d] for each block of the row."""
        row_keys = keys.index_select(1, row.pages).flatten(1, 2)  # [G, P * page_size, d]
        row_values = values.index_select(1, row.pages).flatten(1, 2)
        return [self._attend_block(block, q, row_keys, row_values) for block in row.blocks]

    def _attend_block(
        self, block: PrefillBlock, q: Tensor, row_keys: Tensor, row_values: Tensor
    ) -> Tensor:
        num_rows, num_groups = block.excluded.shape[0], self._spec.num_kv_heads
        q = q[block.first_token : block.first_token + block.num_tokens]
        q = F.pad(q, (0, 0, 0, 0, 0, num_rows - block.num_tokens))
        grouped = q.view(num_rows, num_groups, -1, q.shape[-1]).transpose(0, 1)  # [G, n, g, d]
        seen = slice(block.kv_start, block.kv_len)
        keys, values = row_keys[:, seen], row_values[:, seen]
        scores = self._scores(grouped.flatten(1, 2), keys)
        by_query = scores.view(*grouped.shape[:3], keys.shape[1])
        masked = by_query[..., block.num_seen - block.kv_start :]
        masked.masked_fill_(block.excluded, float("-inf"))
        weights = torch.softmax(scores, dim=-1).to(self._dtype)
        attended = torch.bmm(weights, values).view(grouped.shape)
        return attended.transpose(0, 1).flatten(1, 2)[: block.num_tokens]


def _window_start(position: int, window: int | None) -> int:
    """The first position that a token at this one sees."""
    return 0 if window is None else max(0, position + 1 - window)


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step


def _common_length(first: Sequence[int], second: Sequence[int], *, limit: int) -> int:
    for index in range(limit):
        if first[index] != second[index]:
            return index
    return limit
