"""What is done to the logits of a row before a token is chosen: penalties, bias, exclusions.
runtime/device_edits.py does the same to all rows at once.

The order is fixed: penalties, bias, `forbid_ids`, mask. The mask has the last word: a bias never
brings an excluded token back, and `forbid_ids` give way where they and the mask leave nothing.
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from runtime.batch import SamplePlan, SampleRow
from runtime.token_limits import exclude_tokens

_EXCLUDED = float("-inf")


def is_plain(row: SampleRow) -> bool:
    """Whether the row's logits stay as the model made them."""
    return (
        row.mask is None
        and not row.forbid_ids
        and not row.sampling.logit_bias
        and (not has_penalty(row))
    )


def edit_logits(logits: Tensor, plan: SamplePlan) -> None:
    """Edits the rows of `logits`, [S, V] float32, in place."""
    for scores, row in zip(logits, plan.rows, strict=True):
        if not is_plain(row):
            _edit_row(scores, row, plan.masks)


def _edit_row(scores: Tensor, row: SampleRow, masks: npt.NDArray[np.int32] | None) -> None:
    if has_penalty(row):
        _penalize(scores, row)
    if row.sampling.logit_bias:
        ids = _indices(list(row.sampling.logit_bias), scores)
        scores[ids] += torch.tensor(
            list(row.sampling.logit_bias.values()), dtype=scores.dtype, device=scores.device
        )
    mask = None
    if row.mask is not None:
        assert masks is not None, "a constrained row needs the masks it points into"
        mask = masks[row.mask]
    if row.forbid_ids and not leaves_nothing(row.forbid_ids, mask):
        scores[_indices(row.forbid_ids, scores)] = _EXCLUDED
    if mask is not None:
        scores.masked_fill_(~_allowed(mask, scores), _EXCLUDED)


def has_penalty(row: SampleRow) -> bool:
    """Whether earlier tokens change the row's scores."""
    s = row.sampling
    return s.repetition_penalty != 1.0 or s.frequency_penalty != 0.0 or s.presence_penalty != 0.0


def _penalize(scores: Tensor, row: SampleRow) -> None:
    """Repetition counts prompt and output, frequency and presence the output only."""
    s = row.sampling
    if s.repetition_penalty != 1.0 and (row.prompt_ids or row.output_ids):
        seen = _indices(sorted({*row.prompt_ids, *row.output_ids}), scores)
        values = scores[seen]
        scores[seen] = torch.where(
            values > 0, values / s.repetition_penalty, values * s.repetition_penalty
        )
    if (s.frequency_penalty or s.presence_penalty) and row.output_ids:
        ids, counts = np.unique(np.asarray(row.output_ids, dtype=np.int64), return_counts=True)
        penalty = s.presence_penalty + s.frequency_penalty * torch.from_numpy(counts)
        scores[torch.from_numpy(ids).to(scores.device)] -= penalty.to(scores)


def leaves_nothing(forbid_ids: tuple[int, ...], mask: npt.NDArray[np.int32] | None) -> bool:
    """Whether every token that the mask allows is forbidden. Never so without a mask."""
    if mask is None:
        return False
    left = mask.copy()
    exclude_tokens(left, forbid_ids)
    return not left.any()


def _allowed(mask: npt.NDArray[np.int32], scores: Tensor) -> Tensor:
    """Bit i of word w allows token 32 w + i. Returns [V] bool."""
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little", count=scores.shape[0])
    return torch.from_numpy(bits.view(np.bool_)).to(scores.device)


def _indices(token_ids: list[int] | tuple[int, ...], scores: Tensor) -> Tensor:
    return torch.tensor(token_ids, dtype=torch.long, device=scores.device)
