"""The edits of runtime/logit_edits.py, in the same order and with the same results, for all rows of
a step together on the device. Called by runtime/device_sampler.py.

Letters: S rows, V vocabulary, E edited places, N masks.
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from runtime.batch import SamplePlan, SampleRow
from runtime.logit_edits import is_plain, leaves_nothing
from runtime.staging import Handle, Staging

_EXCLUDED = float("-inf")
_WORD_BITS = 32


class PlacedValues:
    """A value for each of E places in [S, V]; no place occurs twice."""

    def __init__(self) -> None:
        self._rows: list[int] = []
        self._token_ids: list[int] = []
        self._values: list[float] = []
        self._handles: tuple[Handle, Handle, Handle] | None = None

    def add(self, row: int, token_ids: list[int], values: list[float]) -> None:
        self._rows += [row] * len(token_ids)
        self._token_ids += token_ids
        self._values += values

    def stage(self, staging: Staging) -> None:
        if self._rows:
            self._handles = (
                staging.add_ints(self._rows),
                staging.add_ints(self._token_ids),
                staging.add_floats(self._values),
            )

    def on_device(self, tensors: list[Tensor], vocab_size: int) -> tuple[Tensor, Tensor] | None:
        """Flat places and values, [E] each."""
        if self._handles is None:
            return None
        rows, token_ids, values = (tensors[handle] for handle in self._handles)
        return rows.long() * vocab_size + token_ids, values


class DeviceEdits:
    """All edits of a step: collected and staged on the host, then applied on the device."""

    def __init__(self, plan: SamplePlan, staging: Staging) -> None:
        self.is_empty = all(is_plain(row) for row in plan.rows)
        self._repeated, self._counted = PlacedValues(), PlacedValues()
        self._biased, self._forbidden = PlacedValues(), PlacedValues()
        self._masks: tuple[Handle, Handle, Handle] | None = None
        if self.is_empty:
            return
        for index, row in enumerate(plan.rows):
            self._collect(index, row, plan.masks)
        for edit in (self._repeated, self._counted, self._biased, self._forbidden):
            edit.stage(staging)
        masked = [(i, row.mask) for i, row in enumerate(plan.rows) if row.mask is not None]
        if masked:
            assert plan.masks is not None, "a constrained row needs the masks it points into"
            self._masks = (
                staging.add_ints([index for index, _ in masked]),
                staging.add_ints([mask for _, mask in masked]),
                staging.add_ints(plan.masks),
            )

    def apply(self, logits: Tensor, tensors: list[Tensor]) -> Tensor:
        """logits: [S, V] float32, which stay as they are -> the edited scores."""
        if self.is_empty:
            return logits
        scores = logits.clone()
        flat, vocab_size = scores.view(-1), scores.shape[1]
        if (repeated := self._repeated.on_device(tensors, vocab_size)) is not None:
            places, penalties = repeated
            values = flat.index_select(0, places)
            lowered = torch.where(values > 0, values / penalties, values * penalties)
            flat.index_copy_(0, places, lowered)
        for edit in (self._counted, self._biased):
            if (added := edit.on_device(tensors, vocab_size)) is not None:
                flat.index_add_(0, *added)
        if (forbidden := self._forbidden.on_device(tensors, vocab_size)) is not None:
            flat.index_copy_(0, *forbidden)
        if self._masks is not None:
            _apply_masks(scores, *(tensors[handle] for handle in self._masks))
        return scores

    def _collect(self, index: int, row: SampleRow, masks: npt.NDArray[np.int32] | None) -> None:
        s = row.sampling
        if s.repetition_penalty != 1.0:
            seen = sorted({*row.prompt_ids, *row.output_ids})
            self._repeated.add(index, seen, [s.repetition_penalty] * len(seen))
        if (s.frequency_penalty or s.presence_penalty) and row.output_ids:
            ids, counts = np.unique(np.asarray(row.output_ids, dtype=np.int64), return_counts=True)
            # In torch, so that the last bit is the one that logit_edits gets.
            penalty = s.presence_penalty + s.frequency_penalty * torch.from_numpy(counts)
            self._counted.add(index, ids.tolist(), (-penalty).tolist())
        if s.logit_bias:
            self._biased.add(index, list(s.logit_bias), list(s.logit_bias.values()))
        mask = masks[row.mask] if masks is not None and row.mask is not None else None
        forbidden = sorted(set(row.forbid_ids))
        if forbidden and not leaves_nothing(row.forbid_ids, mask):
            self._forbidden.add(index, forbidden, [_EXCLUDED] * len(forbidden))


def _apply_masks(scores: Tensor, rows: Tensor, mask_of_row: Tensor, masks: Tensor) -> None:
    """rows and mask_of_row: [R] int32; masks: [N, ceil(V / 32)] int32, where bit i of word w allows
    token 32 w + i. Edits `scores` in place."""
    bits = torch.arange(_WORD_BITS, dtype=torch.int32, device=scores.device)
    allowed = ((masks[:, :, None] >> bits) & 1).bool().flatten(1)[:, : scores.shape[1]]
    excluded = ~allowed.index_select(0, mask_of_row)
    masked = scores.index_select(0, rows).masked_fill_(excluded, _EXCLUDED)
    scores.index_copy_(0, rows.long(), masked)
