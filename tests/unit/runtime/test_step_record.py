"""Which steps are recorded, and what is measured of one."""

from typing import cast

import pytest

from runtime.batch import PageId, ScheduledBatch, ScheduledRow
from runtime.messages import EngineStats, StepSpan, TraceContext
from runtime.request import Sequence
from runtime.schedule import Schedule
from runtime.step_record import StepRecorder
from telemetry import names
from tests.engine_harness import StepClock, make_sequence, make_submit

TRACED = TraceContext(f"00-{1:032x}-{2:016x}-01")


def sequence(trace: TraceContext | None = TRACED, *, key: int = 0, input_len: int = 4) -> Sequence:
    made = make_sequence(range(4), key=key)
    made.request.submit = make_submit("r", range(4), trace=trace)
    made.input_len = input_len
    return made


def schedule(*sequences: Sequence, start: int = 0, num_tokens: int = 4) -> Schedule:
    rows = tuple(
        ScheduledRow(one.key, tuple(range(num_tokens)), start, (PageId(0),), ())
        for one in sequences
    )
    return Schedule(ScheduledBatch(step=5, rows=rows, copies=()), sequences, (), ())


def recorder(*draws: float, share: float = 0.3) -> StepRecorder:
    left = iter(draws)
    return StepRecorder(share, clock=StepClock(), draw=lambda: next(left))


def step_of(recorder: StepRecorder, of: Schedule, *, start_ns: int = 0) -> StepSpan | None:
    recorder.begin(of, start_ns)
    recorder.computed()
    recorder.sampled()
    recorder.end(lambda: EngineStats(num_waiting=3, num_running=2, pages_free=7))
    recorded = recorder.take()
    return None if recorded is None else recorded[1]


def test_a_step_is_recorded_where_the_draw_is_below_the_share() -> None:
    drawn = recorder(0.0, 0.299, 0.3, 0.9)
    assert [step_of(drawn, schedule(sequence())) is not None for _ in range(4)] == [
        True,
        True,
        False,
        False,
    ]


def test_a_step_that_is_not_drawn_is_not_looked_at() -> None:
    assert step_of(recorder(0.5), cast("Schedule", None)) is None
    assert step_of(recorder(share=0.0), cast("Schedule", None)) is None


def test_between_two_steps_no_step_is_under_way() -> None:
    drawn = recorder(0.1, 0.9)
    of = schedule(sequence())
    drawn.begin(of, 0)
    own = drawn.traceparent
    assert own.startswith("00-")
    assert own.endswith("-01")
    drawn.begin(of, 0)
    assert drawn.traceparent == ""
    assert drawn.take() is None


def test_masks_of_the_step_are_told_and_not_those_before() -> None:
    one = sequence()
    one.phases.mask_time_ns = 5_000_000
    drawn = recorder(0.0)
    drawn.begin(schedule(one), 0)
    drawn.computed()
    one.phases.mask_time_ns += 2_000_000
    drawn.sampled()
    drawn.end(EngineStats)
    recorded = drawn.take()
    assert recorded is not None
    assert recorded[1].attributes[names.ATTR_MASK_TIME_MS] == 2.0


def test_rows_behind_the_input_are_decode_rows() -> None:
    of = schedule(sequence(input_len=8), sequence(input_len=2, key=1), start=4, num_tokens=3)
    step = step_of(recorder(0.0), of)
    assert step is not None
    assert step.attributes[names.ATTR_STEP_DECODE_ROWS] == 1
    assert step.attributes[names.ATTR_STEP_PREFILL_TOKENS] == 3
    assert step.attributes[names.ATTR_STEP_NUMBER] == 5
    assert step.attributes[names.ATTR_STEP_PAGES_FREE] == 7


def test_a_clock_set_back_gives_a_step_of_no_length() -> None:
    step = step_of(recorder(0.0), schedule(sequence()), start_ns=10**18)
    assert step is not None
    assert step.start_ns == step.end_ns == 10**18


@pytest.mark.parametrize(
    ("traceparent", "is_recorded"),
    [("00-1-2-00", False), ("00-1-2-01", True), ("00-1-2-03", True), ("", False), ("zz", False)],
)
def test_a_step_needs_a_request_that_is_sampled(traceparent: str, is_recorded: bool) -> None:
    of = schedule(sequence(TraceContext(traceparent)), sequence(None, key=1))
    step = step_of(recorder(0.0), of)
    assert (step is not None) is is_recorded
    assert step is None or step.requests == [traceparent]
