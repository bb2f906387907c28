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
