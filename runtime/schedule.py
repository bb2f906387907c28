"""One step's schedule: being drafted under a token budget, then frozen for the executor."""

from dataclasses import dataclass, field
from typing import cast

from runtime.batch import PageCopy, PageId, ScheduledBatch, ScheduledRow, ScoredTokens
from runtime.phases import QueueReason
from runtime.request import Sequence


@dataclass(frozen=True, slots=True)
class Schedule:
    """The batch, the sequence behind each of its rows, and what else scheduling decided.

    `admitted` left the queue for the first time, `preempted` are back in it; `unfit` cannot run
    even alone.
    """

    batch: ScheduledBatch
    sequences: tuple[Sequence, ...]
    admitted: tuple[Sequence, ...]
    unfit: tuple[Sequence, ...]
    preempted: tuple[Sequence, ...] = ()

    @property
    def sampled(self) -> list[Sequence]:
        """The sequences that get a token, in the order of the batch's sample offsets."""
        rows = zip(self.sequences, self.batch.rows, strict=True)
        return [sequence for sequence, row in rows if row.sample_offsets]

    @property
    def scored(self) -> list[Sequence]:
        """Those whose prompts are scored in this step, in the order of the batch's rows."""
        rows = zip(self.sequences, self.batch.rows, strict=True)
        return [sequence for sequence, row in rows if row.scored is not None]


@dataclass(eq=False, slots=True)
class ScheduleDraft:
    """What was placed so far; a preempted sequence can be taken out again, `preempted_for` says
    what another lacked then."""

    page_size: int
    budget: int
    preempted_for: QueueReason | None = None
    admitted: list[Sequence] = field(default_factory=list)
    unfit: list[Sequence] = field(default_factory=list)
    preempted: list[Sequence] = field(default_factory=list)
    _num_tokens: dict[Sequence, int] = field(default_factory=dict)

    @property
    def num_rows(self) -> int:
        return len(self._num_tokens)

    def has(self, sequence: Sequence) -> bool:
        return sequence in self._num_tokens

    def place(self, sequence: Sequence, num_tokens: int) -> None:
        """Plans the next `num_tokens` tokens of a sequence whose lease covers them."""
        self._num_tokens[sequence] = num_tokens
        self.budget -= num_tokens

    def discard(self, sequence: Sequence) -> None:
        """Takes a sequence out, its tokens return to the budget."""
        self.budget += self._num_tokens.pop(sequence, 0)

    def freeze(self, step: int) -> Schedule:
        """The finished schedule."""
        rows = tuple(self._row(one, num_tokens) for one, num_tokens in self._num_tokens.items())
        copies = tuple(
            _tail_copy(one, self.page_size) for one in self._num_tokens if one.has_tail_copy
        )
        return Schedule(
            batch=ScheduledBatch(step=step, rows=rows, copies=copies),
            sequences=tuple(self._num_tokens),
            admitted=tuple(self.admitted),
            unfit=tuple(self.unfit),
            preempted=tuple(self.preempted),
        )

    def _row(self, sequence: Sequence, num_tokens: int) -> ScheduledRow:
        assert sequence.lease is not None
        start = sequence.num_computed_tokens
        end = start + num_tokens
        num_pages = -(-end // self.page_size)
        wants_token = end == len(sequence.token_ids) and sequence.sampling.max_tokens > 0
        return ScheduledRow(
            key=sequence.key,
            token_ids=tuple(sequence.token_ids[start:end]),
            start=start,
            # A cast, as a hundred calls of PageId a row would cost more than the rest of the step.
            page_ids=cast("tuple[PageId, ...]", tuple(sequence.lease.page_ids[:num_pages])),
            sample_offsets=(num_tokens - 1,) if wants_token else (),
            scored=_scored_tokens(sequence, start, end) if sequence.wants_scores else None,
        )


def _scored_tokens(sequence: Sequence, start: int, end: int) -> ScoredTokens | None:
    """What [start, end) says of the tokens of the prompt that have no score yet."""
    prompt_ids = sequence.request.prompt_ids
    # The logits of token i are about token i + 1.
    first, stop = max(start, sequence.num_scored_tokens), min(end, len(prompt_ids) - 1)
    if first >= stop:
        return None
    num_best = sequence.request.submit.num_prompt_logprobs or 0
    return ScoredTokens(first - start, prompt_ids[first + 1 : stop + 1], num_best)


def _tail_copy(sequence: Sequence, page_size: int) -> PageCopy:
    """Copy on write: the matched part of a partial page goes to the first page that is ours."""
    lease = sequence.lease
    assert lease is not None
    assert lease.tail is not None
    return PageCopy(
        source=PageId(lease.tail.page_id),
        target=PageId(lease.page_ids[lease.num_shared_tokens // page_size]),
        num_slots=lease.tail.num_tokens,
    )
