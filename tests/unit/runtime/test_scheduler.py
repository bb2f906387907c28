"""Who runs in a step, with how many tokens, in which pages."""

from runtime.batch import ScoredTokens
from runtime.messages import Sampling, TokenLogprob
from runtime.phases import QueueReason
from runtime.request import MAX_DECODE_TOKENS, SequenceState
from runtime.step_budget import StepBudget, StepShape
from tests.engine_harness import make_sequence
from tests.unit.runtime.scheduler_bench import OVERTAKING_NS, Bench, shares


def test_a_long_prompt_is_computed_in_chunks_of_the_budget() -> None:
    bench = Bench(budget=32)
    bench.add(70, key=0)
    assert [shares(bench.step()) for _ in range(4)] == [[(0, 32)], [(0, 32)], [(0, 6)], [(0, 1)]]


def test_decode_rows_come_before_prefill_and_prefill_takes_what_is_left() -> None:
    bench = Bench(budget=32)
    bench.add(32, key=0)
    bench.step()
    bench.add(5, key=1)
    assert shares(bench.step()) == [(0, 1), (1, 5)]
    bench.add(70, key=2)
    assert shares(bench.step()) == [(0, 1), (1, 1), (2, 30)]


def test_a_decode_row_carries_what_was_forced_and_leaves_a_token_for_each_other() -> None:
    bench = Bench(budget=16)
    sequences = [bench.run_once(3, key=key) for key in range(3)]
    for sequence in sequences:
        sequence.token_ids += [91] * 9
    schedule = bench.scheduler.schedule()
    assert shares(schedule) == [(0, 10), (1, 5), (2, 1)]
    assert [bool(row.sample_offsets) for row in schedule.batch.rows] == [True, False, False]
    assert schedule.sampled == [sequences[0]]


def test_a_long_forced_run_is_a_chunk_behind_the_decode_rows() -> None:
    bench = Bench(budget=32)
    long, short = (bench.run_once(3, key=key) for key in range(2))
    long.token_ids += [91] * MAX_DECODE_TOKENS
    short.token_ids += [91] * (MAX_DECODE_TOKENS - 1)
    assert shares(bench.step()) == [(1, 16), (0, 16)]
    # The one row is measured as a decode row, the other as prefill behind four tokens.
    assert bench.budget.last_shape == StepShape(1, 16, prefill_context=16 * (4 + 8))
    assert shares(bench.step()) == [(0, 1), (1, 1)]


def test_a_running_prefill_comes_before_admission() -> None:
    bench = Bench(budget=32)
    bench.add(40, key=0)
    waiting = bench.add(40, key=1)
    assert shares(bench.step()) == [(0, 32)]
    assert waiting.phases.queue_reason is QueueReason.BUDGET
    assert shares(bench.step()) == [(0, 8), (1, 24)]


def test_no_more_run_than_there_are_slots() -> None:
    bench = Bench(max_running=2, budget=100)
    sequences = [bench.add(5, key=key) for key in range(3)]
    assert shares(bench.step()) == [(0, 5), (1, 5)]
    assert sequences[2].phases.queue_reason is QueueReason.SLOTS
    bench.scheduler.end(sequences[0])
    assert shares(bench.step()) == [(1, 1), (2, 5)]


def test_admission_takes_pages_for_the_whole_input() -> None:
    bench = Bench(num_pages=10, budget=16)
    bench.add(100, key=0)
    bench.step()
    assert bench.cache.counts().free == 3


def test_who_has_less_to_compute_overtakes_waiting_and_running_prefills() -> None:
    bench = Bench(budget=32)
    bench.add(100, key=0)
    bench.step()
    bench.add(40, key=1)
    bench.add(10, key=2)
    assert shares(bench.step()) == [(2, 10), (1, 22)]
    assert shares(bench.step()) == [(2, 1), (1, 18), (0, 13)]


def test_nobody_is_overtaken_for_ever_waiting_or_running() -> None:
    bench = Bench(budget=32)
    bench.add(100, key=0)
    bench.step()
    bench.add(90, key=1)
    bench.clock.now_ns += OVERTAKING_NS
    bench.add(10, key=2)
    assert shares(bench.step()) == [(0, 32)]
    assert [shares(bench.step()) for _ in range(2)] == [[(0, 32)], [(0, 4), (1, 28)]]


def test_what_running_answers_will_need_is_not_given_away() -> None:
    bench = Bench(num_pages=10, budget=200)
    sampling = Sampling(max_tokens=64)
    for key in range(2):
        bench.scheduler.add(make_sequence([key] * 48, key=key, sampling=sampling))
    bench.add(10, key=2)
    assert shares(bench.step()) == [(2, 10), (0, 48)]
    assert shares(bench.step()) == [(2, 1), (0, 1)]


def test_who_lacked_memory_is_asked_again_when_another_has_ended() -> None:
    bench = Bench(num_pages=8, budget=200)
    first = bench.add(60, key=0)
    bench.step()
    late = bench.add(100, key=1)
    bench.step()
    assert late.phases.queue_reason is QueueReason.MEMORY
    bench.scheduler.end(first)
    assert shares(bench.step()) == [(1, 100)]


def test_that_is_so_beside_decode_rows_whose_time_bounds_prefill() -> None:
    bench = Bench(num_pages=12, budget=200, step_budget=StepBudget(200))
    first, second = bench.add(60, key=0), bench.add(60, key=1)
    bench.step()
    late = bench.add(100, key=2)
    for _ in range(6):
        bench.step()
    assert late.phases.queue_reason is QueueReason.MEMORY
    bench.scheduler.end(first)
    for _ in range(2):
        bench.step()
    assert (late.state, second.is_decoding) == (SequenceState.RUNNING, True)


def test_who_comes_after_one_that_lacks_memory_and_does_with_less_is_let_in() -> None:
    bench = Bench(num_pages=12, budget=200, step_budget=StepBudget(200))
    bench.expect_short_answers()
    first = bench.add(100, key=0)
    bench.step()
    large = bench.add(100, key=1)
    for _ in range(6):
        bench.step()
    small = bench.add(5, key=2)
    for _ in range(2):
        bench.step()
    assert large.phases.queue_reason is QueueReason.MEMORY
    assert (first.is_decoding, small.state) == (True, SequenceState.RUNNING)


def test_a_request_that_does_not_fit_now_is_not_overtaken() -> None:
    bench = Bench(num_pages=10, budget=200)
    first = bench.add(90, key=0)
    bench.step()
    large = bench.add(100, key=1)
    bench.clock.now_ns += OVERTAKING_NS
    small = bench.add(5, key=2)
    bench.step()
    assert large.phases.queue_reason is small.phases.queue_reason is QueueReason.MEMORY
    bench.scheduler.end(first)
    assert shares(bench.step()) == [(1, 100), (2, 5)]


def test_the_watermark_is_kept_free_beside_others_but_not_alone() -> None:
    bench = Bench(num_pages=10, budget=200, watermark=3)
    bench.add(128, key=0)
    assert shares(bench.step()) == [(0, 128)]
    bench.add(16, key=1)
    assert shares(bench.step()) == [(0, 1)]


def test_what_cannot_run_even_alone_is_reported_and_blocks_nobody() -> None:
    bench = Bench(num_pages=4, budget=200)
    huge = bench.add(80, key=0)
    bench.clock.now_ns += OVERTAKING_NS
    bench.add(5, key=1)
    schedule = bench.scheduler.schedule()
    assert schedule.unfit == (huge,)
    assert shares(schedule) == [(1, 5)]


def test_the_sequence_admitted_last_is_preempted_and_goes_to_the_head() -> None:
    bench = Bench(num_pages=4, budget=200)
    bench.expect_short_answers()
    first, second = bench.add(30, key=0), bench.add(30, key=1)
    late = bench.add(40, key=2)
    steps = [shares(bench.step()) for _ in range(4)]
    assert steps[0] == [(0, 30), (1, 30)]
    assert steps[3] == [(0, 1)]
    assert (first.state, second.state) == (SequenceState.RUNNING, SequenceState.WAITING)
    assert (bench.counters.preemptions, second.phases.num_preemptions) == (1, 1)
    bench.scheduler.end(first)
    assert shares(bench.step())[0][0] == second.key
    assert late.state is SequenceState.WAITING


def test_a_sequence_that_was_placed_already_can_still_be_preempted() -> None:
    """Decode rows are placed first; an older prefill may then take a decode row's pages."""
    bench = Bench(num_pages=5, budget=40)
    older = bench.add(38, key=0)
    bench.step()
    younger = bench.add(30, key=1)
    bench.step()
    older.token_ids += [90] * 20
    schedule = bench.scheduler.schedule()
    assert shares(schedule) == [(0, 21)]
    assert younger.state is SequenceState.WAITING


def test_a_preempted_sequence_resumes_from_what_is_left_in_the_tree() -> None:
    bench = Bench(num_pages=4, budget=200)
    bench.expect_short_answers()
    first, second = bench.add(30, key=0), bench.add(30, key=1)
    for _ in range(4):
        bench.step()
    bench.scheduler.end(first)
    resumed = bench.step()
    assert resumed.sequences == (second,)
    assert second.num_cached_tokens == 0
    assert second.num_recomputed_tokens == bench.counters.recomputed_tokens > 0
    assert bench.counters.computed_prompt_tokens == 62
    assert bench.counters.cached_tokens == 0


def test_the_last_token_is_computed_even_if_all_are_cached() -> None:
    bench = Bench(budget=200)
    first = bench.add(32, key=7)
    bench.step()
    bench.scheduler.end(first)
    again = make_sequence([7, *range(31)], key=8)
    bench.scheduler.add(again)
    assert shares(bench.step()) == [(8, 1)]
    assert again.num_cached_tokens == 31
    assert bench.counters.prompt_tokens == 64
    assert bench.counters.cached_tokens + bench.counters.computed_prompt_tokens == 64


def test_a_partial_page_is_copied_once_and_its_source_let_go() -> None:
    bench = Bench(budget=200)
    bench.scheduler.end(bench.run_once(40, key=7))
    again = make_sequence([7, *range(35), 80, 81], key=8)
    bench.scheduler.add(again)
    assert [len(bench.step().batch.copies) for _ in range(2)] == [1, 0]
    assert again.num_cached_tokens == 36
    assert bench.cache.counts().locked == 2


def test_who_ends_before_its_first_chunk_has_run_leaves_what_was_there() -> None:
    bench = Bench(budget=200)
    bench.scheduler.end(bench.run_once(40, key=7))
    again = make_sequence([7, *range(35), 80, 81], key=8)
    bench.scheduler.add(again)
    bench.scheduler.schedule()
    bench.scheduler.end(again)
    bench.cache.check_invariants()
    counts = bench.cache.counts()
    assert (counts.held, counts.locked, counts.free + counts.cached) == (0, 0, counts.total)
    assert bench.cache.peek(b"", [7, *range(39)]) == 40


def test_full_pages_are_shared_while_their_sequence_still_runs() -> None:
    bench = Bench(budget=20)
    bench.add(70, key=3)
    bench.step()
    assert bench.cache.peek(b"", [3, *range(69)]) == 16
    bench.step()
    assert bench.cache.peek(b"", [3, *range(69)]) == 32


def test_a_private_sequence_leaves_nothing_in_the_tree() -> None:
    bench = Bench(budget=200)
    private = bench.add(70, key=3, use_cache=False)
    bench.step()
    bench.scheduler.end(private)
    assert bench.cache.counts().free == 64


def test_a_follower_is_passed_over_without_blocking_those_behind() -> None:
    bench = Bench(budget=48)
    bench.add(70, key=5)
    follower = make_sequence([5, *range(69)], key=6)
    bench.scheduler.add(follower)
    seen = []
    for key in (None, 7, None):
        if key is not None:
            bench.add(25, key=key)
        step = shares(bench.step())
        seen.append((step, follower.phases.queue_reason))
    assert seen == [
        ([(5, 48)], QueueReason.BUDGET),
        ([(5, 22), (7, 25)], QueueReason.PREFIX),
        ([(5, 1), (7, 1), (6, 6)], None),
    ]
    assert follower.num_cached_tokens == 64


def test_ending_is_idempotent_in_every_state() -> None:
    bench = Bench(max_running=1)
    runs, waits, builds = bench.add(20, key=0), bench.add(20, key=1), make_sequence([1], key=2)
    bench.step()
    for sequence in (runs, waits, builds, runs, waits, builds):
        bench.scheduler.end(sequence)
    assert (bench.scheduler.num_running, bench.scheduler.num_waiting) == (0, 0)
    assert bench.cache.counts().held == bench.cache.counts().locked == 0


def test_only_what_was_computed_is_kept_when_a_sequence_ends_between_chunks() -> None:
    bench = Bench(budget=20)
    sequence = bench.add(70, key=3)
    bench.step()
    bench.scheduler.end(sequence)
    assert bench.cache.peek(b"", [3, *range(69)]) == 20


def test_no_page_is_taken_whose_logits_are_wanted() -> None:
    bench = Bench(budget=200)
    bench.run_once(70, key=0)
    scored = make_sequence([0, *range(69)], key=1, num_prompt_logprobs=2)
    bench.scheduler.add(scored)
    row = next(row for row in bench.step().batch.rows if row.key == 1)
    assert (row.start, len(row.token_ids), scored.num_cached_tokens) == (0, 70, 0)
    assert bench.counters.cached_tokens == 0


def test_what_was_scored_before_a_preemption_is_matched_again() -> None:
    bench = Bench(budget=200)
    bench.run_once(70, key=0)
    scored = make_sequence([0, *range(69)], key=1, num_prompt_logprobs=2)
    scored.add_scores([TokenLogprob(-1.0)] * 40)
    scored.num_provided_tokens = 40
    bench.scheduler.add(scored)
    row = next(row for row in bench.step().batch.rows if row.key == 1)
    assert (row.start, scored.num_cached_tokens) == (40, 0)
    assert row.scored == ScoredTokens(0, tuple(range(40, 69)), num_best=2)
