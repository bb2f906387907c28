"""The phase records of one sequence."""

import pytest

from runtime.messages import Phase
from runtime.phases import PhaseLog, PreemptionReason, QueueReason
from telemetry import names


def by_name(phases: list[Phase]) -> dict[str, Phase]:
    return {phase.name: phase for phase in phases}


def test_queue_phase_spans_submission_to_admission_and_names_the_last_reason() -> None:
    log = PhaseLog(3, queued_since_ns=100)
    log.hold(QueueReason.SLOTS)
    log.hold(QueueReason.PREFIX)
    log.admitted(250)
    (queue,) = log.take()
    assert (queue.name, queue.start_ns, queue.end_ns) == (names.SPAN_QUEUE, 100, 250)
    assert queue.attributes == {names.ATTR_CHOICE: 3, names.ATTR_QUEUE_REASON: "prefix"}


def test_queue_phase_without_a_wait_gives_no_reason() -> None:
    log = PhaseLog(0, queued_since_ns=100)
    log.admitted(101)
    assert names.ATTR_QUEUE_REASON not in log.take()[0].attributes


def test_a_preempted_sequence_queues_once_more_for_memory() -> None:
    log = PhaseLog(0, queued_since_ns=100)
    log.admitted(200)
    log.preempted(300, PreemptionReason.MEMORY, num_computed=9)
    log.admitted(400)
    _, _, second = log.take()
    assert (second.start_ns, second.end_ns) == (300, 400)
    assert second.attributes[names.ATTR_QUEUE_REASON] == "memory"
    assert second.attributes[names.ATTR_PREEMPTIONS] == 1


def test_decode_is_one_phase_from_the_first_token_to_the_end() -> None:
    log = PhaseLog(0, queued_since_ns=None)
    log.decoded(500, num_tokens=1)
    log.mask_time_ns = 1_500_000
    log.decoded(700, num_tokens=2)
    log.end(750, num_recomputed=7, finish_reason="length")
    (decode,) = log.take()
    assert (decode.start_ns, decode.end_ns) == (500, 750)
    assert decode.attributes == {
        names.ATTR_CHOICE: 0,
        names.ATTR_TOKENS: 3,
        names.ATTR_STEPS: 2,
        names.ATTR_FORCED_TOKENS: 1,
        names.ATTR_MASK_TIME_MS: 1.5,
        names.ATTR_MASKS: 1,
        names.ATTR_MASK_P99_MS: pytest.approx(1.5, rel=0.016),
        names.ATTR_TPOT_P50_MS: pytest.approx(100e-6, rel=0.016),
        names.ATTR_TPOT_P99_MS: pytest.approx(100e-6, rel=0.016),
        names.ATTR_PREEMPTIONS: 0,
        names.ATTR_RECOMPUTED_TOKENS: 7,
        names.ATTR_FINISH_REASON: "length",
    }


def test_the_end_of_a_preempted_decode_closes_both_queue_and_decode() -> None:
    log = PhaseLog(0, queued_since_ns=None)
    log.decoded(500, num_tokens=1)
    log.preempted(600, PreemptionReason.FAIRNESS, num_computed=9)
    log.end(700, num_recomputed=0)
    phases = by_name(log.take())
    assert phases[names.SPAN_QUEUE].end_ns == phases[names.SPAN_DECODE].end_ns == 700
    assert names.ATTR_FINISH_REASON not in phases[names.SPAN_DECODE].attributes


def test_a_chunk_says_how_much_of_it_was_computed_before() -> None:
    log = PhaseLog(0, queued_since_ns=None)
    log.prefilled(1, 2, num_tokens=7, num_rows=3, num_recomputed=5)
    (chunk,) = log.take()
    assert chunk.attributes[names.ATTR_TOKENS] == 7
    assert chunk.attributes[names.ATTR_BATCH_ROWS] == 3
    assert chunk.attributes[names.ATTR_RECOMPUTED_TOKENS] == 5


def test_phases_are_taken_once() -> None:
    log = PhaseLog(0, queued_since_ns=1)
    log.admitted(2)
    assert [len(log.take()), len(log.take())] == [1, 0]


def test_a_clock_set_back_gives_a_phase_of_no_length() -> None:
    log = PhaseLog(0, queued_since_ns=1_000)
    log.admitted(400)
    (queue,) = log.take()
    assert (queue.start_ns, queue.end_ns) == (1_000, 1_000)


def test_gaps_count_for_each_token_that_came_after_them() -> None:
    log = PhaseLog(0, queued_since_ns=None)
    log.decoded(0, num_tokens=1)
    log.decoded(50_000_000, num_tokens=5)
    log.decoded(150_000_000, num_tokens=1)
    log.decoded(250_000_000, num_tokens=1)
    log.end(250_000_000, num_recomputed=0)
    (decode,) = log.take()
    # five gaps of 10 ms and two of 100; the first token is no gap's end
    assert decode.attributes[names.ATTR_TPOT_P50_MS] == pytest.approx(10, rel=1 / 64)
    assert decode.attributes[names.ATTR_TPOT_P99_MS] == pytest.approx(100, rel=1 / 64)


def test_one_token_has_no_gap_and_a_choice_without_masks_no_quantile_of_them() -> None:
    log = PhaseLog(0, queued_since_ns=None)
    log.decoded(5, num_tokens=3)
    log.end(6, num_recomputed=0)
    absent = {names.ATTR_TPOT_P50_MS, names.ATTR_TPOT_P99_MS, names.ATTR_MASKS}
    assert not (absent | {names.ATTR_MASK_P99_MS}) & set(log.take()[0].attributes)


def test_steps_without_a_mask_do_not_count_among_the_masks() -> None:
    log = PhaseLog(0, queued_since_ns=None)
    for number in range(10):
        log.mask_time_ns += 2_000_000 if number == 3 else 0
        log.decoded(number, num_tokens=1)
    log.end(11, num_recomputed=0)
    (decode,) = log.take()
    assert decode.attributes[names.ATTR_MASKS] == 1
    assert decode.attributes[names.ATTR_MASK_P99_MS] == pytest.approx(2, rel=1 / 64)
    assert decode.attributes[names.ATTR_MASK_TIME_MS] == 2


def test_preemption_and_resumption_are_moments_with_their_reason() -> None:
    log = PhaseLog(1, queued_since_ns=None)
    log.preempted(600, PreemptionReason.FAIRNESS, num_computed=40)
    log.joined(3)
    log.admitted(700)
    log.matched(700, 710, num_cached=32, num_to_compute=9)
    preempted, queue, match, resumed = log.take()
    assert (preempted.name, preempted.start_ns, preempted.end_ns) == ("preempted", 600, 600)
    assert preempted.attributes == {
        names.ATTR_CHOICE: 1,
        names.ATTR_PREEMPTION_REASON: "fairness",
        names.ATTR_TOKENS: 40,
    }
    assert queue.attributes[names.ATTR_QUEUE_POSITION] == 3
    assert (resumed.name, resumed.start_ns) == ("resumed", match.end_ns)
    assert resumed.attributes == {names.ATTR_CHOICE: 1, names.ATTR_CACHED_TOKENS: 32}


def test_a_first_match_resumes_nothing() -> None:
    log = PhaseLog(0, queued_since_ns=None)
    log.matched(1, 2, num_cached=0, num_to_compute=9)
    assert [phase.name for phase in log.take()] == [names.SPAN_CACHE_MATCH]
