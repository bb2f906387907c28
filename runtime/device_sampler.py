"""What runtime/sampler.py does, for devices where each wait and each copy costs: all rows together,
one copy to the device, one back. Called by the executor for GPUs.

Letters: S rows, V vocabulary, R rows of one kind, K candidates of a row.
"""

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from runtime.batch import SampledToken, SamplePlan, SampleRow
from runtime.candidates import has_filter
from runtime.device_edits import DeviceEdits
from runtime.hardware import to_host
from runtime.messages import TokenLogprob
from runtime.noise import gumbel_noise, noise_key
from runtime.sampler import MIN_TEMPERATURE
from runtime.staging import Staging

Words = npt.NDArray[np.int32]


def sample_on_device(logits: Tensor, plan: SamplePlan) -> tuple[SampledToken, ...]:
    """One token a row of `logits`, [S, V] float32, which stays as it is."""
    if not plan.rows:
        return ()
    num_rows, vocab_size = logits.shape
    staging = Staging()
    edits = DeviceEdits(plan, staging)
    draws = _stage_draws(plan, vocab_size, staging)
    logprobs = DeviceLogprobs(plan, vocab_size, staging)
    tensors = staging.upload(logits.device)
    scores = edits.apply(logits, tensors)
    best_scores, chosen = scores.max(dim=-1)
    for draw in draws:
        draw.overwrite(chosen, scores, tensors)
    found = [chosen.int(), torch.isfinite(best_scores).int()]
    found += logprobs.compute(logits, chosen, tensors)
    # The one wait for the device in a step, and the one copy from it.
    words = to_host(torch.cat([values.view(-1) for values in found]))
    token_ids, is_possible, rest = np.split(words, [num_rows, 2 * num_rows])
    by_row = logprobs.read(rest)
    return tuple(
        SampledToken(token_id, by_row.get(index)) if possible else SampledToken(None)
        for index, (token_id, possible) in enumerate(
            zip(token_ids.tolist(), is_possible.tolist(), strict=True)
        )
    )


def _stage_draws(plan: SamplePlan, vocab_size: int, staging: Staging) -> "list[Draws]":
    """Of the rows that have a temperature: those that draw from all tokens, and the others."""
    indices = [i for i, r in enumerate(plan.rows) if r.sampling.temperature >= MIN_TEMPERATURE]
    whole = [index for index in indices if not has_filter(plan.rows[index].sampling)]
    filtered = [index for index in indices if has_filter(plan.rows[index].sampling)]
    draws = []
    if whole:
        draws.append(Draws(whole, plan, None, staging))
    if filtered:
        filters = Filters([plan.rows[index] for index in filtered], vocab_size, staging)
        draws.append(Draws(filtered, plan, filters, staging))
    return draws


class Filters:
    """top_k, top_p and min_p of R rows, applied as runtime/candidates.py does."""

    def __init__(self, rows: list[SampleRow], vocab_size: int, staging: Staging) -> None:
        samplings = [row.sampling for row in rows]
        limits = [min(s.top_k, vocab_size) if s.top_k > 0 else vocab_size for s in samplings]
        self._num_candidates = max(limits)
        self._limits = staging.add_ints(limits)
        # Rounding may bring the sum of all above 1.
        self._masses = staging.add_floats([s.top_p if s.top_p < 1.0 else 2.0 for s in samplings])
        # What lies further below the best score is left out.
        self._distances = staging.add_floats(
            [math.log(s.min_p) if s.min_p > 0.0 else -math.inf for s in samplings]
        )

    def candidates(self, scores: Tensor, tensors: list[Tensor]) -> tuple[Tensor, Tensor]:
        """scores: [R, V] after temperature -> the best [R, K], minus infinity where a filter leaves
        one out, and their token ids."""
        best, token_ids = torch.topk(scores, self._num_candidates, dim=-1)
        limits, masses, distances = (
            tensors[handle][:, None] for handle in (self._limits, self._masses, self._distances)
        )
        places = torch.arange(self._num_candidates, device=scores.device)
        kept = places < limits
        total = torch.logsumexp(best.masked_fill(~kept, -math.inf), dim=-1, keepdim=True)
        before = (best - total).exp_().cumsum_(-1).roll(1, dims=-1)  # mass of the better ones
        kept &= (before < masses) | (places == 0)
        kept &= best >= best[:, :1] + distances
        return best.masked_fill(~kept, -math.inf), token_ids


class Draws:
    """Rows that draw their token, all from the whole vocabulary or all from what filters leave."""

    def __init__(
        self, indices: list[int], plan: SamplePlan, filters: Filters | None, staging: Staging
    ) -> None:
        rows = [plan.rows[index] for index in indices]
        self._filters = filters
        self._indices = staging.add_ints(indices)
        self._temperatures = staging.add_floats([row.sampling.temperature for row in rows])
        keys = [noise_key(row.sampling.seed, row.choice, row.position) for row in rows]
        self._keys = staging.add_ints(np.array(keys, dtype=np.int32))

    def overwrite(self, chosen: Tensor, scores: Tensor, tensors: list[Tensor]) -> None:
        """Puts the drawn tokens in their rows' places of `chosen`, [S] long."""
        rows, keys = tensors[self._indices].long(), tensors[self._keys]
        heated = scores.index_select(0, rows) / tensors[self._temperatures][:, None]
        if self._filters is None:
            every = torch.arange(scores.shape[1], dtype=torch.int32, device=scores.device)
            drawn = torch.argmax(heated + gumbel_noise(keys, every), dim=-1)
        else:
            kept, token_ids = self._filters.candidates(heated, tensors)
            place = torch.argmax(kept + gumbel_noise(keys, token_ids.int()), dim=-1, keepdim=True)
            drawn = token_ids.gather(1, place)[:, 0]
        chosen.index_copy_(0, rows, drawn)


class DeviceLogprobs:
    """Log-probabilities of the raw distribution, for the rows that want them."""

    def __init__(self, plan: SamplePlan, vocab_size: int, staging: Staging) -> None:
        self._wanted = {
            index: min(row.sampling.num_logprobs, vocab_size)
            for index, row in enumerate(plan.rows)
            if row.sampling.num_logprobs is not None
        }
        self._num_best = max(self._wanted.values(), default=0)
        self._indices = staging.add_ints(list(self._wanted))

    def compute(self, logits: Tensor, chosen: Tensor, tensors: list[Tensor]) -> list[Tensor]:
        """int32 tensors for `read`: the chosen tokens', the best tokens', the best tokens' ids."""
        if not self._wanted:
            return []
        rows = tensors[self._indices].long()
        logprobs = torch.log_softmax(logits.index_select(0, rows), dim=-1)
        own = logprobs.gather(1, chosen.index_select(0, rows)[:, None])
        best, best_ids = torch.topk(logprobs, self._num_best, dim=-1)
        return [own.view(torch.int32), best.view(torch.int32), best_ids.int()]

    def read(self, words: Words) -> dict[int, TokenLogprob]:
        """By row, from what `compute` gave."""
        return dict(self._read(words))

    def _read(self, words: Words) -> Iterator[tuple[int, TokenLogprob]]:
        size = len(self._wanted) * self._num_best
        own, best, best_ids = np.split(words, [len(self._wanted), len(self._wanted) + size])
        values = best.view(np.float32).reshape(-1, self._num_best).tolist() if size else []
        ids = best_ids.reshape(-1, self._num_best).tolist() if size else []
        for place, (index, num_best) in enumerate(self._wanted.items()):
            top = tuple(zip(ids[place], values[place], strict=True))[:num_best] if num_best else ()
            yield index, TokenLogprob(float(own.view(np.float32)[place]), top)
