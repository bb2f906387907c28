"""Drives an Executor by hand, without scheduler and cache: greedy tokens for some prompts."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from runtime.batch import (
    Executor,
    PageId,
    RowKey,
    SampledToken,
    SamplePlan,
    SampleRow,
    ScheduledBatch,
    ScheduledRow,
)
from runtime.messages import Sampling

GREEDY = Sampling(max_tokens=1, temperature=0.0, num_logprobs=3)


@dataclass(eq=False)
class DrivenSequence:
    """One sequence with pages of its own. KV is computed for `num_computed` of its tokens."""

    key: RowKey
    token_ids: list[int]
    page_ids: tuple[PageId, ...]
    num_computed: int = 0
    sampled: list[SampledToken] = field(default_factory=list)

    def next_row(self, chunk_len: int) -> ScheduledRow:
        end = min(self.num_computed + chunk_len, len(self.token_ids))
        new = tuple(self.token_ids[self.num_computed : end])
        wants_logits = end == len(self.token_ids)
        return ScheduledRow(
            key=self.key,
            token_ids=new,
            start=self.num_computed,
            page_ids=self.page_ids,
            sample_offsets=(len(new) - 1,) if wants_logits else (),
        )


def drive_greedily(
    executor: Executor,
    prompts: Sequence[Sequence[int]],
    *,
    num_tokens: int,
    chunk_len: int,
    page_size: int = 16,
    first_page: int = 0,
) -> list[list[SampledToken]]:
    """The greedy tokens after each prompt. Prompts are computed `chunk_len` tokens a step, all
    sequences in one batch; the pages of different sequences are interleaved."""
    num_pages = [-(-(len(prompt) + num_tokens) // page_size) for prompt in prompts]
    sequences = [
        DrivenSequence(key=RowKey(index), token_ids=list(prompt), page_ids=page_ids)
        for index, (prompt, page_ids) in enumerate(
            zip(prompts, interleaved_pages(num_pages, first_page=first_page), strict=True)
        )
    ]
    step = 0
    while running := [s for s in sequences if len(s.sampled) < num_tokens]:
        run_step(executor, running, step=step, chunk_len=chunk_len)
        step += 1
    return [sequence.sampled for sequence in sequences]


def interleaved_pages(num_pages: Sequence[int], *, first_page: int) -> list[tuple[PageId, ...]]:
    """Pages for each sequence, dealt in turn, so that no sequence's pages are neighbours."""
    dealt: list[list[PageId]] = [[] for _ in num_pages]
    next_page = first_page
    for turn in range(max(num_pages)):
        for pages, wanted in zip(dealt, num_pages, strict=True):
            if turn < wanted:
                pages.append(PageId(next_page))
                next_page += 1
    return [tuple(pages) for pages in dealt]


def run_step(
    executor: Executor, sequences: Sequence[DrivenSequence], *, step: int, chunk_len: int
) -> None:
    """One batch of all sequences; their sampled tokens are appended to them."""
    rows = tuple(sequence.next_row(chunk_len) for sequence in sequences)
    executor.forward(ScheduledBatch(step=step, rows=rows))
    sampling = [s for s, row in zip(sequences, rows, strict=True) if row.sample_offsets]
    plan = SamplePlan(tuple(SampleRow(GREEDY, 0, len(s.sampled)) for s in sampling))
    for sequence, sampled in zip(sampling, executor.sample(plan), strict=True):
        assert sampled.token_id is not None
        sequence.sampled.append(sampled)
        sequence.token_ids.append(sampled.token_id)
    for sequence, row in zip(sequences, rows, strict=True):
        sequence.num_computed += len(row.token_ids)
