"""Implements runtime.batch.Executor with the native step.

Where no score is changed and no probability is wanted the token is chosen in C++ too; other rows go
through runtime/sampler.py, the reference, as all rows of the torch executor do.
"""

import math
from collections.abc import Set as AbstractSet
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from runtime.batch import SampledToken, SamplePlan, SampleRow, ScheduledBatch, ScoredTokens
from runtime.logit_edits import has_penalty
from runtime.messages import TokenLogprob
from runtime.native.library import Choice
from runtime.native.native_decoder import NativeDecoder
from runtime.noise import noise_key
from runtime.page_io import PageIo
from runtime.prompt_scores import scored_places
from runtime.sampler import MIN_TEMPERATURE, sample

_MAX_INT32 = 2**31 - 1  # ctypes cuts greater numbers off without a word


class NativeExecutor:
    """Called from one thread, as the decoder is."""

    def __init__(self, decoder: NativeDecoder) -> None:
        self._decoder = decoder
        self.page_io: PageIo | None = decoder.page_io(frozenset())
        self._logits: Tensor | None = None
        self._scored: list[ScoredTokens] = []
        self._scored_places: list[int] = []

    def forward(self, batch: ScheduledBatch) -> None:
        self._decoder.copy_slots(batch.copies)
        self._logits = self._decoder.step(batch) if batch.rows else None
        self._scored = batch.scored
        self._scored_places = list(scored_places(batch)) if self._scored else []

    @torch.inference_mode()
    def sample(self, plan: SamplePlan) -> tuple[SampledToken, ...]:
        if not plan.rows:
            return ()
        assert self._logits is not None, "sample() follows a forward() that wanted logits"
        logits = self._logits if plan.places is None else _rows(self._logits, list(plan.places))
        assert logits.shape[0] == len(plan.rows), "one plan row a wanted logits row"
        simple = [index for index, row in enumerate(plan.rows) if is_simple(row)]
        if len(simple) == len(plan.rows):
            return self._choose(logits, plan)
        others = [index for index, row in enumerate(plan.rows) if not is_simple(row)]
        sampled: dict[int, SampledToken] = {}
        for indices, choose in ((simple, self._choose), (others, sample)):
            rows = tuple(plan.rows[index] for index in indices)
            tokens = choose(_rows(logits, indices), replace(plan, rows=rows))
            sampled |= zip(indices, tokens, strict=True)
        return tuple(sampled[index] for index in range(len(plan.rows)))

    def score(self) -> tuple[list[TokenLogprob], ...]:
        if not self._scored:
            return ()
        token_ids = [token_id for tokens in self._scored for token_id in tokens.token_ids]
        num_best = max(tokens.num_best for tokens in self._scored)
        scores = self._decoder.score(self._scored_places, token_ids, num_best=num_best)
        return scores.split(self._scored)

    def write_pages(
        self, layer: int, pages: npt.NDArray[np.int32], keys: Tensor, values: Tensor
    ) -> None:
        """Sets pages of one layer. keys and values: [P, page_size, G, d] float32, contiguous."""
        self._decoder.write_pages(layer, pages, keys, values)

    def page_io_beside(self, foreign_pages: AbstractSet[int]) -> PageIo:
        """`foreign_pages` were in part written by another executor; the set may change."""
        return self._decoder.page_io(foreign_pages)

    def _choose(self, logits: Tensor, plan: SamplePlan) -> tuple[SampledToken, ...]:
        """For rows that `is_simple` holds of. `logits` stay as they are, but for the meantime."""
        scores = logits.numpy()
        forbidden = [(i, list(row.forbid_ids)) for i, row in enumerate(plan.rows) if row.forbid_ids]
        kept = [scores[place] for place in forbidden]
        for place in forbidden:
            scores[place] = -math.inf
        tokens, scores_of_tokens = self._decoder.choose(
            logits, [_choice(row, plan) for row in plan.rows]
        )
        for place, values in zip(forbidden, kept, strict=True):
            scores[place] = values
        return tuple(
            SampledToken(token if math.isfinite(score) else None)
            for token, score in zip(tokens, scores_of_tokens, strict=True)
        )


def _rows(logits: Tensor, indices: list[int]) -> Tensor:
    """A copy, made by this thread alone: torch would wake threads of its own, which then spin on
    the cores of the step's (13 ms more a step of 16 rows on two cores)."""
    return torch.from_numpy(logits.numpy()[indices])


def is_simple(row: SampleRow) -> bool:
    """Whether the row's token is the best one, or one drawn, of what its mask, or else its
    `forbid_ids`, leaves: no score is changed and no probability is wanted."""
    sampling = row.sampling
    return (
        not sampling.logit_bias
        and sampling.num_logprobs is None
        and not (row.forbid_ids and row.mask is not None)
        and not has_penalty(row)
    )


def _choice(row: SampleRow, plan: SamplePlan) -> Choice:
    choice = Choice()
    if row.mask is not None:
        assert plan.masks is not None, "a constrained row needs the masks it points into"
        choice.mask = plan.masks[row.mask].ctypes.data
    if row.sampling.temperature >= MIN_TEMPERATURE:
        choice.temperature = row.sampling.temperature
        choice.top_k = min(row.sampling.top_k, _MAX_INT32)
        choice.top_p, choice.min_p = row.sampling.top_p, row.sampling.min_p
        choice.key[:] = noise_key(row.sampling.seed, row.choice, row.position)
    return choice
