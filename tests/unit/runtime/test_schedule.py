"""A step's schedule while it is drafted."""

import pytest

from prefix_cache import Lease, TailMatch
from runtime.batch import PageCopy, PageId, ScoredTokens
from runtime.messages import Sampling, TokenLogprob
from runtime.request import Sequence
from runtime.schedule import ScheduleDraft
from tests.engine_harness import PAGE_SIZE, make_sequence


def leased(num_tokens: int, *, key: int, page_ids: list[int], num_computed: int = 0) -> Sequence:
    sequence = make_sequence(range(num_tokens), key=key)
    sequence.lease = Lease(page_ids=page_ids)
    sequence.num_computed_tokens = num_computed
    return sequence


def test_a_chunk_that_is_not_the_last_samples_nothing() -> None:
    draft = ScheduleDraft(PAGE_SIZE, budget=20)
    draft.place(leased(40, key=0, page_ids=[5, 6, 7]), 17)
    schedule = draft.freeze(3)
    (row,) = schedule.batch.rows
    assert (row.start, row.token_ids, row.sample_offsets) == (0, tuple(range(17)), ())
    assert row.page_ids == (5, 6)
    assert (schedule.sampled, schedule.batch.step, draft.budget) == ([], 3, 3)


def test_the_last_chunk_samples_at_its_last_token() -> None:
    draft = ScheduleDraft(PAGE_SIZE, budget=100)
    sequence = leased(40, key=0, page_ids=[5, 6, 7], num_computed=17)
    draft.place(sequence, 23)
    schedule = draft.freeze(0)
    (row,) = schedule.batch.rows
    assert (row.start, row.sample_offsets, row.page_ids) == (17, (22,), (5, 6, 7))
    assert schedule.sampled == [sequence]


def test_a_discarded_sequence_gives_its_tokens_back() -> None:
    draft = ScheduleDraft(PAGE_SIZE, budget=30)
    stays, goes = leased(10, key=0, page_ids=[1]), leased(20, key=1, page_ids=[2, 3])
    draft.place(stays, 10)
    draft.place(goes, 20)
    draft.discard(goes)
    assert draft.budget == 20
    assert draft.freeze(0).sequences == (stays,)


def test_a_partial_page_is_copied_into_the_first_page_of_its_own() -> None:
    sequence = leased(40, key=0, page_ids=[5, 6, 7], num_computed=20)
    assert sequence.lease is not None
    sequence.lease.num_shared_tokens = 16
    sequence.lease.tail = TailMatch(page_id=9, num_tokens=4)
    draft = ScheduleDraft(PAGE_SIZE, budget=100)
    draft.place(sequence, 20)
    assert draft.freeze(0).batch.copies == (PageCopy(PageId(9), PageId(6), num_slots=4),)


def test_who_is_asked_for_no_token_is_not_sampled() -> None:
    sequence = make_sequence(range(40), sampling=Sampling(max_tokens=0))
    sequence.lease = Lease(page_ids=[5, 6, 7])
    draft = ScheduleDraft(PAGE_SIZE, budget=100)
    draft.place(sequence, 40)
    schedule = draft.freeze(0)
    assert (schedule.batch.rows[0].sample_offsets, schedule.sampled) == ((), [])


def scored(
    start: int, end: int, *, num_scored: int = 0, choice: int = 0, num_best: int | None = 3
) -> ScoredTokens | None:
    """What the step that computes [start, end) scores of a prompt of 40, to which two tokens of an
    answer belong, of which tokens up to `num_scored` have their score."""
    sequence = make_sequence(
        range(40), choice=choice, num_prompt_logprobs=num_best, output_prefix=[1, 2]
    )
    sequence.lease = Lease(page_ids=[5, 6, 7])
    sequence.num_computed_tokens = start
    sequence.add_scores([TokenLogprob(-1.0)] * num_scored)
    draft = ScheduleDraft(PAGE_SIZE, budget=100)
    draft.place(sequence, end - start)
    schedule = draft.freeze(0)
    (row,) = schedule.batch.rows
    assert schedule.scored == ([sequence] if row.scored else [])
    return row.scored


def test_a_prompt_is_scored_but_for_its_first_token() -> None:
    assert scored(0, 42) == ScoredTokens(0, tuple(range(1, 40)), num_best=3)


def test_a_chunk_scores_the_token_behind_it() -> None:
    assert scored(0, 17) == ScoredTokens(0, tuple(range(1, 18)), num_best=3)
    assert scored(17, 39, num_scored=17) == ScoredTokens(0, tuple(range(18, 40)), num_best=3)


def test_the_logits_of_the_last_token_of_a_prompt_score_nothing() -> None:
    assert scored(39, 42, num_scored=39) is None


@pytest.mark.parametrize(("start", "first"), [(0, 20), (16, 4), (20, 0)])
def test_after_a_preemption_only_what_has_no_score_is_scored(start: int, first: int) -> None:
    assert scored(start, 30, num_scored=20) == ScoredTokens(first, tuple(range(21, 31)), num_best=3)


def test_recomputation_that_does_not_reach_what_has_no_score_scores_nothing() -> None:
    assert scored(0, 20, num_scored=20) is None


def test_only_the_first_choice_scores_and_only_if_that_is_wanted() -> None:
    assert scored(0, 42, choice=1) is None
    assert scored(0, 42, num_best=None) is None
    assert scored(0, 42, num_best=0) == ScoredTokens(0, tuple(range(1, 40)), num_best=0)
