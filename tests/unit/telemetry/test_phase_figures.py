"""What metrics take from phases."""

from runtime.messages import AttributeValue, Phase
from telemetry import names
from telemetry.phase_figures import PhaseFigures, figures_of

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


def test_the_wait_is_that_of_the_first_time_in_the_queue() -> None:
    phases = [
        phase(names.SPAN_TOKENIZE, 0, S),
        phase(names.SPAN_QUEUE, S, 3 * S),
        phase(names.SPAN_QUEUE, 5 * S, 50 * S),
    ]
    assert figures_of(phases).queue_s == 2.0


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
