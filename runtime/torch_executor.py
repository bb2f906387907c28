"""Runs scheduled batches with plain torch, on any device. Owns its device tensors.

Called by the engine's loop alone, from one thread.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from runtime.attention import AttentionPlan, PagedAttention
from runtime.batch import SampledToken, SamplePlan, ScheduledBatch
from runtime.decoder import Decoder
from runtime.decoder_spec import DecoderSpec
from runtime.decoder_weights import load_decoder_weights
from runtime.model_facts import ModelSource
from runtime.pool_limits import PoolLimits
from runtime.sampler import sample

# A matmul pays for each number of rows it has not seen yet (0.8 ms a shape in bfloat16, 0.4 in
# float32), so batches are padded to one of these numbers.
_ROW_BUCKETS = (1, 2, 4, 8, 12, 16, *range(32, 128, 16), *range(128, 1024, 32))


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """A batch as tensors: [M] tokens and positions, padded; [S] tokens whose logits are wanted."""

    token_ids: Tensor
    positions: Tensor
    sampled: Tensor
    plan: AttentionPlan


def build_torch_executor(
    source: ModelSource,
    spec: DecoderSpec,
    limits: PoolLimits,
    *,
    dtype: torch.dtype,
    device: torch.device,
) -> "TorchExecutor":
    """Loads the weights. Raises: ModelError."""
    weights = load_decoder_weights(source, dtype=dtype, device=device)
    attention = PagedAttention(
        spec,
        num_pages=limits.num_pages,
        page_size=limits.page_size,
        dtype=dtype,
        device=device,
    )
    model = Decoder(spec, weights, max_position=limits.max_model_len)
    return TorchExecutor(model, attention, device=device)


class TorchExecutor:
    """Implements runtime.batch.Executor with torch."""

    def __init__(self, model: Decoder, attention: PagedAttention, *, device: torch.device) -> None:
        self._model = model
        self._attention = attention
        self._device = device
        self._logits: Tensor | None = None

    @torch.inference_mode()
    def forward(self, batch: ScheduledBatch) -> None:
        self._attention.copy_slots(batch.copies)
        self._logits = None
        if not batch.rows:
            return
        prepared = self._prepare(batch)
        hidden = self._model.forward(
            prepared.token_ids,
            prepared.positions,
            attention=self._attention,
            plan=prepared.plan,
        )
        num_sampled = prepared.sampled.shape[0]
        if num_sampled:
            padded = _pad(prepared.sampled)
            self._logits = self._model.logits(hidden[padded])[:num_sampled]

    @torch.inference_mode()
    def sample(self, plan: SamplePlan) -> tuple[SampledToken, ...]:
        if not plan.rows:
            return ()
        assert self._logits is not None, "sample() follows a forward() that wanted logits"
        assert self._logits.shape[0] == len(plan.rows), "one plan row a wanted logits row"
        return sample(self._logits, plan)

    @property
    def num_layers(self) -> int:
        return self._attention.num_layers

    def read_pages(self, layer: int, pages: npt.NDArray[np.int32]) -> tuple[Tensor, Tensor]:
        """Keys and values of whole pages, [P, page_size, G, d] float32 each."""
        return self._attention.read_pages(layer, torch.from_numpy(pages).long())

    def _prepare(self, batch: ScheduledBatch) -> PreparedBatch:
        token_ids = [token_id for row in batch.rows for token_id in row.token_ids]
        positions = [
            position
            for row in batch.rows
            for position in range(row.start, row.start + len(row.token_ids))
        ]
        return PreparedBatch(
            token_ids=_pad(self._tensor(token_ids)),
            positions=_pad(self._tensor(positions)),
            sampled=self._tensor(list(_sampled_indices(batch))),
            plan=self._attention.plan(batch),
        )

    def _tensor(self, values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=self._device)


def _sampled_indices(batch: ScheduledBatch) -> Iterator[int]:
    """Where, among all tokens of the batch, the wanted logits are."""
    first_token = 0
    for row in batch.rows:
        yield from (first_token + offset for offset in row.sample_offsets)
        first_token += len(row.token_ids)


def _pad(values: Tensor) -> Tensor:
    """values: [N] -> [M] with zeros after the N, M the next bucket."""
    num_rows = values.shape[0]
    bucket = bisect_left(_ROW_BUCKETS, num_rows)
    padded_rows = _ROW_BUCKETS[bucket] if bucket < len(_ROW_BUCKETS) else num_rows
    return torch.nn.functional.pad(values, (0, padded_rows - num_rows))
