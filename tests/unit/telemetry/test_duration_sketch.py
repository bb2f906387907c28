"""Quantiles in little memory, beside those of all values."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.duration_sketch import DurationSketch
from telemetry.load import percentile

HOUR_NS = 3_600_000_000_000


@settings(derandomize=True, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, HOUR_NS), st.integers(1, 4)), min_size=1),
    st.sampled_from([0.0, 0.5, 0.99, 1.0]),
)
def test_a_quantile_is_that_of_all_values_within_a_64th(
    entries: list[tuple[int, int]], share: float
) -> None:
    sketch = DurationSketch()
    for duration_ns, count in entries:
        sketch.add(duration_ns, count)
    exact_ns = percentile([ns for ns, count in entries for _ in range(count)], share)
    assert sketch.quantile_ms(share) == pytest.approx((exact_ns or 0) / 1e6, rel=1 / 64, abs=1e-12)
    assert sketch.count == sum(count for _, count in entries)


def test_nothing_noted_has_no_quantile() -> None:
    assert DurationSketch().quantile_ms(0.5) is None


def test_a_duration_of_a_clock_set_back_is_none() -> None:
    sketch = DurationSketch()
    sketch.add(-5_000_000)
    assert sketch.quantile_ms(0.5) == 0.0


def test_a_million_gaps_take_some_hundred_numbers() -> None:
    sketch = DurationSketch()
    for number in range(20_000):
        sketch.add(number * number * 3_000 + 1_000, 50)
    assert sketch.count == 1_000_000
    assert len(sketch._counts) < 1_000
