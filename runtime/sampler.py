"""Turns logits into tokens, and into log-probabilities where they are asked for.

Batched where rows are alike; what a row gets never depends on the other rows. Letters: S rows,
V vocabulary.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from runtime.batch import SampledToken, SamplePlan, SampleRow
from runtime.candidates import has_filter, pick_candidates
from runtime.logit_edits import edit_logits, is_plain
from runtime.messages import TokenLogprob
from runtime.noise import gumbel_noise, noise_key

# Scores divided by less overflow float32, after which neither their order nor their mask is left.
# So near to zero the best token has all the mass anyway.
MIN_TEMPERATURE = 1e-5


def sample(logits: Tensor, plan: SamplePlan) -> tuple[SampledToken, ...]:
    """One token a row of `logits`, [S, V] float32, which stays as it is."""
    if not plan.rows:
        return ()
    scores = logits
    if not all(is_plain(row) for row in plan.rows):
        scores = logits.clone()
        edit_logits(scores, plan)
    best_scores, chosen = scores.max(dim=-1)
    _draw(scores, plan.rows, chosen)
    # The one wait for the device in a step.
    token_ids, best = chosen.tolist(), best_scores.tolist()
    logprobs = _logprobs(logits, plan.rows, chosen)
    return tuple(
        SampledToken(token_id=token_id, logprob=logprob)
        if math.isfinite(score)
        else SampledToken(token_id=None)
        for token_id, score, logprob in zip(token_ids, best, logprobs, strict=True)
    )


def _draw(scores: Tensor, rows: Sequence[SampleRow], chosen: Tensor) -> None:
    """Overwrites the best token of every row that has a temperature with a drawn one."""
    drawn = [i for i, row in enumerate(rows) if row.sampling.temperature >= MIN_TEMPERATURE]
    whole = [index for index in drawn if not has_filter(rows[index].sampling)]
    if whole:
        chosen[whole] = _draw_whole(scores, rows, whole)
    for index in drawn:
        if has_filter(rows[index].sampling):
            chosen[index] = _draw_filtered(scores[index], rows[index])


def _draw_whole(scores: Tensor, rows: Sequence[SampleRow], indices: list[int]) -> Tensor:
    """Rows that draw from the whole vocabulary, together."""
    temperatures = torch.tensor(
        [rows[index].sampling.temperature for index in indices], device=scores.device
    )
    token_ids = torch.arange(scores.shape[1], dtype=torch.int32, device=scores.device)
    noise = gumbel_noise(_keys(rows, indices, scores.device), token_ids)
    return torch.argmax(scores[indices] / temperatures[:, None] + noise, dim=-1)


def _draw_filtered(scores: Tensor, row: SampleRow) -> Tensor:
    kept, token_ids = pick_candidates(scores / row.sampling.temperature, row.sampling)
    noise = gumbel_noise(_keys([row], [0], scores.device), token_ids.int())[0]
    return token_ids[torch.argmax(kept + noise)]


def _keys(rows: Sequence[SampleRow], indices: list[int], device: torch.device) -> Tensor:
    """[len(indices), 2] int32."""
    keys = [noise_key(rows[i].sampling.seed, rows[i].choice, rows[i].position) for i in indices]
    return torch.tensor(keys, dtype=torch.int32, device=device)


def _logprobs(
    logits: Tensor, rows: Sequence[SampleRow], chosen: Tensor
) -> list[TokenLogprob | None]:
    """Of the raw distribution, for the rows that want them; the best k in falling order."""
    result: list[TokenLogprob | None] = [None] * len(rows)
    wanted = [i for i, row in enumerate(rows) if row.sampling.num_logprobs is not None]
    if not wanted:
        return result
    logprobs = torch.log_softmax(logits[wanted], dim=-1)
    own = logprobs.gather(1, chosen[wanted][:, None])[:, 0].tolist()
    num_best = max(rows[i].sampling.num_logprobs or 0 for i in wanted)
    best, best_ids = torch.topk(logprobs, min(num_best, logits.shape[1]))
    tops = [
        list(zip(ids, values, strict=True))
        for ids, values in zip(best_ids.tolist(), best.tolist(), strict=True)
    ]
    for index, logprob, top in zip(wanted, own, tops, strict=True):
        num_logprobs = rows[index].sampling.num_logprobs or 0
        result[index] = TokenLogprob(logprob=logprob, top=tuple(top[:num_logprobs]))
    return result
