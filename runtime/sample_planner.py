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
from runtime.token_limits import exclude_tokens
from telemetry.logs import stack_of

_log = logging.getLogger(__name__)

_ALL_ALLOWED = -1  # every bit of a word


class SamplePlanner:
    """Owns the mask array: one row per sequence of a step that has a mask, reused in the next.

    A mask holds what the grammar and the client allow. Forbidden tokens give way where there is a
    grammar (runtime/logit_edits.py); where there is none they are taken out of the mask at once.
    """

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
        """Fills the masks of the constrained ones, but those `without_mask` as if they had no
        constraint. `places` are the sequences' among the step's, where it is not for all. Good
        until the next call."""
        masks: dict[Sequence, int] = {}
        for sequence in sequences:
            is_constrained = sequence.matcher is not None and sequence not in without_mask
            if is_constrained or sequence.request.allowed is not None:
                mask_row = self._masks[len(masks)]
                self._fill(sequence, mask_row, is_constrained=is_constrained)
                masks[sequence] = len(masks)
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
        if mask is not None and sequence.matcher is None:
            return ()
        forbidden = self._rules.forbidden_ids(sequence)
        first = self._rules.forbidden_first_ids(sequence) if mask is None else ()
        return tuple(sorted({*forbidden, *first})) if first else forbidden

    def _fill(self, sequence: Sequence, mask_row: MaskRow, *, is_constrained: bool) -> None:
        if is_constrained:
            self._ask_matcher(sequence, mask_row)
        else:
            mask_row.fill(_ALL_ALLOWED)
        if sequence.request.allowed is not None:
            sequence.request.allowed.restrict(mask_row)
        exclude_tokens(mask_row, self._rules.forbidden_first_ids(sequence))
        if sequence.matcher is None:
            exclude_tokens(mask_row, self._rules.forbidden_ids(sequence))

    def _ask_matcher(self, sequence: Sequence, mask_row: MaskRow) -> None:
        assert sequence.matcher is not None
        start_ns = self._timer()
        try:
            sequence.matcher.fill(mask_row)
        except GrammarError as error:
            # With nothing allowed the row gets no token, which ends this choice alone.
            fields = {**sequence.request.submit.log_fields, "exception": stack_of(error)}
            _log.error("a matcher could not fill its mask", extra=fields)
            mask_row.fill(0)
        sequence.phases.mask_time_ns += self._timer() - start_ns
