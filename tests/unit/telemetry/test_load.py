"""A request's figures, from arrivals that were made up."""

import pytest

from telemetry.load import (
    RequestTiming,
    percentile,
    time_stream,
)

MS = 1_000_000


def test_a_streams_times_are_from_its_start_and_between_its_deltas() -> None:
    timing = time_stream(
        start_ns=100 * MS,
        arrivals=[(150 * MS, 1), (160 * MS, 1), (190 * MS, 1)],
        output_tokens=5,
    )
    assert timing == RequestTiming(ttft_s=0.05, stream_s=0.04, itl_s=(0.01, 0.03), output_tokens=5)


def test_tpot_is_over_the_servers_tokens_and_not_over_the_deltas() -> None:
    timing = time_stream(start_ns=0, arrivals=[(0, 1), (40 * MS, 1)], output_tokens=5)
    assert timing is not None
    assert timing.tpot_s == pytest.approx(0.01)


def test_one_token_has_no_tpot_and_no_gap() -> None:
    timing = time_stream(start_ns=0, arrivals=[(7 * MS, 1)], output_tokens=1)
    assert timing is not None
    assert (timing.tpot_s, timing.itl_s) == (None, ())


def test_a_delta_of_several_tokens_has_as_many_gaps() -> None:
    timing = time_stream(start_ns=0, arrivals=[(10 * MS, 3), (40 * MS, 2)], output_tokens=5)
    assert timing is not None
    assert (timing.ttft_s, timing.itl_s, timing.stream_s) == (0.01, (0.015, 0.015), 0.03)


def test_an_answer_without_text_has_no_timing() -> None:
    assert time_stream(start_ns=0, arrivals=[], output_tokens=0) is None


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1.0), (0.5, 2.0), (0.51, 3.0), (0.75, 3.0), (0.99, 4.0)]
)
def test_a_percentile_is_a_value_that_was_measured(share: float, expected: float) -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], share) == expected


def test_one_outlier_in_a_hundred_is_no_p99_and_two_are() -> None:
    assert percentile([1.0] * 99 + [9.0], 0.99) == 1.0
    assert percentile([1.0] * 98 + [9.0] * 2, 0.99) == 9.0
    assert percentile([], 0.99) is None
