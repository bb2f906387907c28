"""Folding of phases: bounded spans, nothing left out of the sums."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from telemetry import names
from telemetry.phases import PhaseBuffer


@dataclass(frozen=True)
class Phase:
    name: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, str | int | float | bool] = field(default_factory=dict)


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
    assert buffer.mask_time_ms() is None
    buffer.add([Phase("decode", i, i, {names.ATTR_MASK_TIME_MS: 0.5}) for i in range(4)])
    assert buffer.mask_time_ms() == 2.0
