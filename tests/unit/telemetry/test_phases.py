"""Folding of phases: bounded spans, nothing left out of the sums."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from telemetry import names
from telemetry.phases import MAX_EVENTS_PER_NAME, PhaseBuffer


@dataclass(frozen=True)
class Phase:
    name: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    step: str = ""


def test_phases_within_the_limit_keep_their_times_and_attributes() -> None:
    buffer = PhaseBuffer(max_spans_per_phase=2)
    buffer.add([Phase("prefill", 1, 3, {"x": "y"}), Phase("prefill", 3, 4)])
    spans = buffer.spans()
    assert [(span.start_ns, span.end_ns, dict(span.attributes)) for span in spans] == [
        (1, 3, {"x": "y"}),
        (3, 4, {}),
    ]
    assert buffer.num_folded() == 0


def test_the_rest_of_a_name_becomes_one_span_that_covers_and_sums_them() -> None:
    buffer = PhaseBuffer(max_spans_per_phase=1)
    buffer.add(
        Phase("prefill", i, i + 1, {names.ATTR_TOKENS: 7, names.ATTR_BATCH_ROWS: 4})
        for i in range(4)
    )
    fold = buffer.spans()[-1]
    assert (fold.name, fold.start_ns, fold.end_ns) == ("prefill", 1, 4)
    assert dict(fold.attributes) == {names.ATTR_TOKENS: 21, names.ATTR_FOLDED_COUNT: 3}


def test_each_name_has_a_limit_of_its_own() -> None:
    buffer = PhaseBuffer(max_spans_per_phase=1)
    buffer.add([Phase("prefill", i, i) for i in range(9)])
    buffer.add([Phase("decode", 9, 10)])
    assert [span.name for span in buffer.spans()] == ["prefill", "decode", "prefill"]


def test_a_phase_never_ends_before_it_starts() -> None:
    buffer = PhaseBuffer()
    buffer.add([Phase("queue", 10, 7)])
    assert buffer.spans()[0].end_ns == 10


def test_mask_time_is_summed_over_kept_and_folded_phases() -> None:
    buffer = PhaseBuffer(max_spans_per_phase=1)
    assert buffer.summary()[names.ATTR_MASK_TIME_MS] is None
    buffer.add([Phase("decode", i, i, {names.ATTR_MASK_TIME_MS: 0.5}) for i in range(4)])
    assert buffer.summary()[names.ATTR_MASK_TIME_MS] == 2.0


def queue(start_ns: int, end_ns: int, reason: str, **attributes: int) -> Phase:
    return Phase(
        names.SPAN_QUEUE, start_ns, end_ns, {names.ATTR_QUEUE_REASON: reason, **attributes}
    )


def test_the_wait_is_the_longest_before_admission_and_its_reason_the_last_of_all() -> None:
    buffer = PhaseBuffer()
    buffer.add([queue(0, 2_000_000, "slots"), queue(0, 5_000_000, "grammar")])
    buffer.add([queue(6_000_000, 16_000_000, "memory", **{names.ATTR_PREEMPTIONS: 1})])
    summary = buffer.summary()
    assert summary[names.ATTR_QUEUE_MS] == 5.0
    assert summary[names.ATTR_QUEUE_REASON] == "memory"


def test_a_request_that_never_queued_says_nothing_of_it() -> None:
    assert set(PhaseBuffer().summary().values()) == {None}


def preempted(at_ns: int) -> Phase:
    return Phase(names.EVENT_PREEMPTED, at_ns, at_ns, {names.ATTR_TOKENS: 7})


def test_moments_are_no_spans_and_are_counted() -> None:
    buffer = PhaseBuffer()
    buffer.add([preempted(5), Phase("prefill", 6, 7), preempted(8)])
    assert [span.name for span in buffer.spans()] == ["prefill"]
    assert [(one.name, one.end_ns) for one in buffer.moments()] == [
        (names.EVENT_PREEMPTED, 5),
        (names.EVENT_PREEMPTED, 8),
    ]
    assert buffer.summary()[names.ATTR_PREEMPTIONS] == 2


def test_more_moments_than_a_span_has_room_for_share_one() -> None:
    buffer = PhaseBuffer()
    buffer.add(preempted(at_ns) for at_ns in range(1_000))
    moments = buffer.moments()
    assert len(moments) == MAX_EVENTS_PER_NAME + 1
    folded = 1_000 - MAX_EVENTS_PER_NAME
    assert (moments[-1].end_ns, moments[-1].attributes) == (
        999,
        {names.ATTR_TOKENS: 7 * folded, names.ATTR_FOLDED_COUNT: folded},
    )
    assert (buffer.spans(), buffer.num_folded()) == ([], folded)
    assert buffer.summary()[names.ATTR_PREEMPTIONS] == 1_000


def test_a_span_knows_the_step_that_computed_it() -> None:
    buffer = PhaseBuffer()
    buffer.add([Phase("prefill", 1, 2, step="00-1-2-01")])
    assert buffer.spans()[0].step == "00-1-2-01"
