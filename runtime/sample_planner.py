"""From the sequences that get a token to the plan by which the executor samples them."""

import logging
import time
from collections.abc import Callable, Collection

import numpy as np

from grammar.errors import GrammarError
from grammar.matcher import MaskRow, mask_words
from runtime.batch import SamplePlan, SampleRow
from runtime.finish_rules import FinishRules
from runtime.request import Sequence

_log = logging.getLogger(__name__)


class SamplePlanner:
    """Owns the mask array: one row per constrained sequence of a step, reused in the next."""

    def __init__(
        self,
        rules: FinishRules,
        *,
        vocab_size: int,
        max_rows: int,
        timer: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._rules = rules
        self._timer = timer
        # masks: [max_rows, ceil(V / 32)] int32
        self._masks = np.zeros((max_rows, mask_words(vocab_size)), dtype=np.int32)

    def plan(
        self,
        sequences: list[Sequence],
        *,
        without_mask: Collection[Sequence] = (),
        places: list[int] | None = None,
    ) -> SamplePlan:
        """Fills the masks of the constrained ones but those `without_mask`. `places` are the
        sequences' among the step's, where it is not for all. Good until the next call."""
        constrained = [
            one for one in sequences if one.matcher is not None and one not in without_mask
        ]
        for index, sequence in enumerate(constrained):
            self._fill(sequence, self._masks[index])
        masks = {sequence: index for index, sequence in enumerate(constrained)}
        rows = tuple(self._row(sequence, masks.get(sequence)) for sequence in sequences)
        return SamplePlan(
            rows=rows,
            masks=self._masks[: len(masks)] if masks else None,
            places=tuple(places) if places is not None else None,
        )

    def _row(self, sequence: Sequence, mask: int | None) -> SampleRow:
        sampling = sequence.sampling
        num_prompt = sequence.num_prompt_tokens
        repeats = sampling.repetition_penalty != 1.0
        counts = sampling.frequency_penalty != 0.0 or sampling.presence_penalty != 0.0
        return SampleRow(
            sampling=sampling,
            choice=sequence.choice,
            position=sequence.num_answer_tokens,
            prompt_ids=sequence.request.prompt_ids if repeats else (),
            output_ids=tuple(sequence.token_ids[num_prompt:]) if repeats or counts else (),
            forbid_ids=self._forbidden(sequence, mask),
            mask=mask,
        )

    def _forbidden(self, sequence: Sequence, mask: int | None) -> tuple[int, ...]:
        """What a mask excludes already is not said again: forbidden ids give way to a mask."""
        forbidden = self._rules.forbidden_ids(sequence)
        first = self._rules.forbidden_first_ids(sequence) if mask is None else ()
        return tuple(sorted({*forbidden, *first})) if first else forbidden

    def _fill(self, sequence: Sequence, mask_row: MaskRow) -> None:
        assert sequence.matcher is not None
        start_ns = self._timer()
        try:
            sequence.matcher.fill(mask_row)
        except GrammarError:
            # With nothing allowed the row gets no token, which ends this choice alone.
            _log.exception("a matcher could not fill its mask")
            mask_row.fill(0)
        _exclude(mask_row, self._rules.forbidden_first_ids(sequence))
        sequence.phases.mask_time_ns += self._timer() - start_ns


def _exclude(mask_row: MaskRow, token_ids: tuple[int, ...]) -> None:
    words = mask_row.view(np.uint32)
    for token_id in token_ids:
        words[token_id // 32] &= np.uint32(0xFFFFFFFF ^ (1 << (token_id % 32)))
