"""What metrics take from phases."""

from runtime.messages import AttributeValue, Phase
from telemetry import names
from telemetry.phase_figures import PhaseFigures, figures_of
from telemetry.phases import PhaseBuffer

S = 1_000_000_000


def phase(name: str, start_ns: int, end_ns: int, **attributes: AttributeValue) -> Phase:
    return Phase(name, start_ns, end_ns, attributes)


def match(choice: int, reason: str | None) -> Phase:
    attributes: dict[str, AttributeValue] = {names.ATTR_CHOICE: choice}
    if reason is not None:
        attributes[names.ATTR_MISS_REASON] = reason
    return Phase(names.SPAN_CACHE_MATCH, 0, 1, attributes)


def test_without_phases_nothing_is_known() -> None:
    assert figures_of([]) == PhaseFigures(None, None, ())


def test_the_wait_is_the_longest_of_all_choices_before_any_preemption() -> None:
    phases = [
        phase(names.SPAN_TOKENIZE, 0, 90 * S),
        phase(names.SPAN_QUEUE, S, 3 * S),
        phase(names.SPAN_QUEUE, S, 6 * S),
        Phase(names.SPAN_QUEUE, 7 * S, 50 * S, {names.ATTR_PREEMPTIONS: 1}),
    ]
    assert figures_of(phases).queue_s == 5.0


def test_the_wait_is_what_the_trace_says() -> None:
    phases = [phase(names.SPAN_QUEUE, start * S, 9 * S) for start in (4, 2, 3)]
    buffer = PhaseBuffer()
    buffer.add(phases)
    assert buffer.summary()[names.ATTR_QUEUE_MS] == (figures_of(phases).queue_s or 0) * 1e3 == 7e3


def test_a_clock_that_was_set_back_gives_no_wait_below_zero() -> None:
    assert figures_of([phase(names.SPAN_QUEUE, 3 * S, 2 * S)]).queue_s == 0.0


def test_masks_of_all_choices_add_up() -> None:
    phases = [
        Phase(names.SPAN_DECODE, 0, 1, {names.ATTR_MASK_TIME_MS: 1.5}),
        Phase(names.SPAN_DECODE, 0, 1, {names.ATTR_MASK_TIME_MS: 0.5}),
    ]
    assert figures_of(phases).mask_s == 0.002


def test_a_reason_counts_once_for_each_prompt() -> None:
    phases = [match(0, "evicted"), match(1, "grows"), match(0, None), match(0, "never_seen")]
    assert figures_of(phases).misses == ("evicted", "never_seen")
