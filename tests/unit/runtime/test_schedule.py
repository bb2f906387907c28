"""A step's schedule while it is drafted."""

from prefix_cache import Lease, TailMatch
from runtime.batch import PageCopy, PageId
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
    assert (draft.budget, draft.has_preempted) == (20, True)
    assert draft.freeze(0).sequences == (stays,)


def test_a_partial_page_is_copied_into_the_first_page_of_its_own() -> None:
    sequence = leased(40, key=0, page_ids=[5, 6, 7], num_computed=20)
    assert sequence.lease is not None
    sequence.lease.num_shared_tokens = 16
    sequence.lease.tail = TailMatch(page_id=9, num_tokens=4)
    draft = ScheduleDraft(PAGE_SIZE, budget=100)
    draft.place(sequence, 20)
    assert draft.freeze(0).batch.copies == (PageCopy(PageId(9), PageId(6), num_slots=4),)
