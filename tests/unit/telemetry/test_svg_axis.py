"""Axes of plots: what they show, where numbers lie, how they are written."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.svg_axis import (
    amount_axis,
    column_text,
    finite,
    number_text,
    place_axis,
    share_axis,
)


@pytest.mark.parametrize(
    ("value", "short", "aligned"),
    [
        (0, "0", "0"),
        (12_000.4, "12,000", "12,000"),
        (350.2, "350", "350"),
        (86, "86", "86.0"),
        (4.2, "4.2", "4.20"),
        (0.003, "0.003", "0.00300"),
        (-5, "-5", "-5.00"),
        (2.5e12, "2.50e+12", "2.50e+12"),
        (1e-7, "1.00e-07", "1.00e-07"),
    ],
)
def test_numbers_are_as_long_as_they_say_something(value: float, short: str, aligned: str) -> None:
    assert (number_text(value), column_text(value)) == (short, aligned)


def test_an_axis_begins_at_zero_and_ends_at_a_round_number_above_the_largest() -> None:
    axis = amount_axis("ms", [12.0, 43.0, None])
    assert [tick.text for tick in axis.ticks] == ["0", "10", "20", "30", "40", "50"]
    assert (axis.place(0), axis.place(25), axis.place(50)) == (0.0, 0.5, 1.0)
    assert axis.label == "ms"


def test_values_that_differ_fifty_times_are_shown_on_a_log_scale_that_says_so() -> None:
    axis = amount_axis("ms", [0.5, 40.0])
    assert axis.is_log
    assert axis.label == "ms, log scale"
    assert [tick.text for tick in axis.ticks] == ["0.1", "1", "10", "100"]
    assert axis.place(1.0) == pytest.approx(1 / 3)
    assert not amount_axis("ms", [0.5, 40.0], may_be_log=False).is_log


def test_what_is_outside_of_an_axis_lies_at_its_nearer_end() -> None:
    assert amount_axis("ms", [0.5, 40.0]).place(0) == 0
    assert share_axis("share").place(1.2) == 1
    assert share_axis("share").place(0.25) == 0.25


def test_things_in_a_row_have_the_same_room_each() -> None:
    axis = place_axis("clients", ["1", "4", "16"])
    assert [axis.place(place) for place in (0, 1, 2)] == pytest.approx([1 / 6, 1 / 2, 5 / 6])
    assert place_axis("clients", []).high > place_axis("clients", []).low


@given(values=st.lists(st.floats(), max_size=6))
@settings(derandomize=True, max_examples=200)
def test_every_number_that_can_be_drawn_lies_on_its_axis(values: list[float]) -> None:
    axis = amount_axis("x", values)
    assert 2 <= len(axis.ticks) <= 12
    assert axis.low < axis.high
    for value in finite(values):
        assert math.isfinite(axis.place(value))
        assert value <= axis.high * (1 + 1e-9)
