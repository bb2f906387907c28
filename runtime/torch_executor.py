"""Runs scheduled batches with plain torch, on any device. Owns its device tensors.

Called by the engine's loop alone, from one thread.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from runtime.attention import PagedAttention
from runtime.attention_backend import AttentionBackend, PageStore, PlanT
from runtime.batch import SampledToken, SamplePlan, ScheduledBatch, ScoredTokens
from runtime.decode_graphs import DecodeGraphs
from runtime.decoder import Decoder
from runtime.decoder_spec import DecoderSpec
from runtime.decoder_weights import load_decoder_weights
from runtime.hardware import to_device
from runtime.messages import TokenLogprob
from runtime.model_facts import ModelSource
from runtime.pool_limits import PoolLimits
from runtime.prompt_scores import score_tokens, scored_places
from runtime.sampler import sample

if TYPE_CHECKING:
    from runtime.page_io import PageIo

# A matmul pays for each number of rows it has not seen yet (0.8 ms a shape in bfloat16, 0.4 in
# float32), so batches are padded to one of these numbers.
_ROW_BUCKETS = (1, 2, 4, 8, 12, 16, *range(32, 128, 16), *range(128, 1024, 32))

Sample = Callable[[Tensor, SamplePlan], tuple[SampledToken, ...]]


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

    def __init__(
        self,
        model: Decoder,
        attention: AttentionBackend[PlanT],
        *,
        device: torch.device,
        graphs: DecodeGraphs | None = None,
        sample: Sample = sample,
    ) -> None:
        self._model = model
        self._pages: PageStore = attention
        self.page_io: PageIo | None = attention.page_io()
        self._compute: Callable[[ScheduledBatch], EagerResult]
        self._compute = EagerStep(model, attention, device=device).run
        self._graphs = graphs
        self._sample = sample
        self._logits: Tensor | None = None
        self._scored: list[ScoredTokens] = []
        self._scored_states: Tensor | None = None

    @torch.inference_mode()
    def forward(self, batch: ScheduledBatch) -> None:
        self._pages.copy_slots(batch.copies)
        self._logits = self._scored_states = None
        self._scored = batch.scored
        if not batch.rows:
            return
        if self._graphs is not None and not self._scored:
            self._logits = self._graphs.run(batch)
        if self._logits is None:
            result = self._compute(batch)
            self._logits, self._scored_states = result.logits, result.scored_states

    @torch.inference_mode()
    def sample(self, plan: SamplePlan) -> tuple[SampledToken, ...]:
        if not plan.rows:
            return ()
        assert self._logits is not None, "sample() follows a forward() that wanted logits"
        logits = self._logits if plan.places is None else self._logits[list(plan.places)]
        assert logits.shape[0] == len(plan.rows), "one plan row a wanted logits row"
        return self._sample(logits, plan)

    @torch.inference_mode()
    def score(self) -> tuple[list[TokenLogprob], ...]:
        if self._scored_states is None:
            return ()
        return score_tokens(
            self._scored_states,
            self._scored,
            project=lambda states: self._model.logits(_pad(states))[: states.shape[0]],
            vocab_size=self._model.vocab_size,
        )

    @property
    def num_layers(self) -> int:
        return self._pages.num_layers

    def read_pages(self, layer: int, pages: npt.NDArray[np.int32]) -> tuple[Tensor, Tensor]:
        """Keys and values of whole pages, [P, page_size, G, d] float32 each."""
        return self._pages.read_pages(layer, torch.from_numpy(pages).long())


@dataclass(frozen=True, slots=True)
class EagerResult:
    """The wanted logits, [S, V], and the hidden states before tokens that are scored, [N, hidden];
    each None where there are none."""

    logits: Tensor | None
    scored_states: Tensor | None


class EagerStep(Generic[PlanT]):
    """One forward of any batch, operation by operation."""

    def __init__(
        self, model: Decoder, attention: AttentionBackend[PlanT], *, device: torch.device
    ) -> None:
        self._model = model
        self._attention = attention
        self._device = device

    def run(self, batch: ScheduledBatch) -> EagerResult:
        token_ids = [token_id for row in batch.rows for token_id in row.token_ids]
        positions = [
            position
            for row in batch.rows
            for position in range(row.start, row.start + len(row.token_ids))
        ]
        hidden = self._model.forward(
            _pad(self._tensor(token_ids)),
            _pad(self._tensor(positions)),
            attention=self._attention,
            plan=self._attention.plan(batch),
        )
        sampled, scored = list(_sampled_indices(batch)), list(scored_places(batch))
        logits = None
        if sampled:
            logits = self._model.logits(hidden[_pad(self._tensor(sampled))])[: len(sampled)]
        return EagerResult(logits, hidden[self._tensor(scored)] if scored else None)

    def _tensor(self, values: list[int]) -> Tensor:
        return to_device(np.array(values, dtype=np.int64), self._device)


def _sampled_indices(batch: ScheduledBatch) -> Iterator[int]:
    """Where, among all tokens of the batch, the wanted logits are."""
    first_token = 0
    for row in batch.rows:
        yield from (first_token + offset for offset in row.sample_offsets)
        first_token += len(row.token_ids)


def _pad(values: Tensor) -> Tensor:
    """values: [N, ...] -> [M, ...] with zeros after the N, M the next bucket."""
    num_rows = values.shape[0]
    bucket = bisect_left(_ROW_BUCKETS, num_rows)
    padded_rows = _ROW_BUCKETS[bucket] if bucket < len(_ROW_BUCKETS) else num_rows
    others = (0, 0) * (values.dim() - 1)
    return torch.nn.functional.pad(values, (*others, 0, padded_rows - num_rows))
