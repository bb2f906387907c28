"""How long answers are expected to be, and whether pages will do for all to grow so long."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.growth import NUM_LENGTHS, UNKNOWN_LEN, Growth, GrowthForecast, OutputLengths


def lengths_of(*lengths: int) -> OutputLengths:
    output_lens = OutputLengths()
    for length in lengths:
        output_lens.observe(length)
    return output_lens


def test_a_new_answer_is_expected_to_be_as_long_as_the_latest_were_in_the_mean() -> None:
    assert lengths_of(10, 20, 60).expect(0, max_tokens=1_000) == 30


def test_an_answer_that_has_begun_is_compared_with_the_longer_ones_only() -> None:
    output_lens = lengths_of(10, 20, 60, 70)
    assert [output_lens.expect(n, max_tokens=1_000) for n in (9, 10, 20, 60)] == [40, 50, 65, 70]


def test_an_answer_is_not_expected_to_pass_its_limit() -> None:
    assert lengths_of(10, 20, 60).expect(0, max_tokens=16) == 16


def test_an_answer_longer_than_all_others_may_double() -> None:
    assert lengths_of(10, 600).expect(600, max_tokens=5_000) == 1_200


def test_before_the_first_answer_a_length_is_assumed() -> None:
    assert OutputLengths().expect(0, max_tokens=100_000) == UNKNOWN_LEN


def test_old_lengths_are_forgotten() -> None:
    output_lens = lengths_of(*[1_000] * 100, *[10] * NUM_LENGTHS)
    assert output_lens.expect(0, max_tokens=5_000) == 10


def test_an_expected_length_is_never_below_what_is_there() -> None:
    output_lens = lengths_of(3, 9, 9, 40)
    assert all(output_lens.expect(n, max_tokens=60) >= n for n in range(61))


def test_the_chance_to_go_on_is_the_share_of_those_that_did() -> None:
    output_lens = lengths_of(10, 20, 20, 80)
    chances = [output_lens.chance(0, n, max_tokens=1_000) for n in (1, 10, 11, 20, 21, 81)]
    assert chances == [1.0, 1.0, 0.75, 0.75, 0.25, 0.0]
    assert output_lens.chance(15, 20, max_tokens=1_000) == pytest.approx(1 / 3)


def test_nothing_is_certain_but_the_limit() -> None:
    output_lens = lengths_of(10, 20, 20, 80)
    assert output_lens.chance(0, 20, max_tokens=19) == 0.0
    assert output_lens.chance(80, UNKNOWN_LEN - 79, max_tokens=1_000) == 0.0
    assert output_lens.chance(80, UNKNOWN_LEN - 80, max_tokens=1_000) == 1.0


def growth(num_left: int, *, num_fitting: int = 0, num_pages: int = 1) -> Growth:
    """Of an answer of known length."""
    return Growth(0, max_tokens=num_left, num_fitting=num_fitting, num_pages=num_pages)


def fits(*growths: Growth, num_pages: int, num_steps: float = math.inf) -> bool:
    forecast = GrowthForecast(OutputLengths(), page_size=16)
    return forecast.fits(list(growths), num_pages=num_pages, num_steps=num_steps)


def test_an_answer_alone_needs_the_pages_that_its_own_do_not_cover() -> None:
    answer = growth(100, num_fitting=4)
    assert [fits(answer, num_pages=n) for n in (5, 6)] == [False, True]


def test_only_the_steps_asked_for_count() -> None:
    answer = growth(100, num_fitting=4)
    assert [fits(answer, num_pages=2, num_steps=n) for n in (36, 37)] == [True, False]


def test_who_ends_early_makes_room_for_the_others() -> None:
    early, late = growth(16, num_pages=10), growth(160)
    assert [fits(late, early, num_pages=n) for n in (1, 2)] == [False, True]
    assert [fits(late, late, num_pages=n) for n in (19, 20)] == [False, True]


def test_an_answer_that_may_be_short_counts_for_less() -> None:
    """One in four is long: of sixteen, four will need the pages."""
    output_lens = lengths_of(*[1, 1, 1, 160] * 8)
    forecast = GrowthForecast(output_lens, page_size=16)
    sixteen = [Growth(0, max_tokens=9_999, num_fitting=0, num_pages=1)] * 16
    needed = next(n for n in range(999) if forecast.fits(sixteen, num_pages=n, num_steps=math.inf))
    assert needed <= 4 * 11 - 16


def test_an_answer_that_turned_out_long_counts_in_full() -> None:
    forecast = GrowthForecast(lengths_of(*[1, 1, 1, 160] * 8), page_size=16)
    begun = [Growth(2, max_tokens=9_999, num_fitting=0, num_pages=1)] * 4
    assert not forecast.fits(begun, num_pages=39, num_steps=math.inf)
    assert forecast.fits(begun, num_pages=40, num_steps=math.inf)


def num_pages_needed(sequences: list[tuple[int, int]], page_size: int) -> int:
    """Step by step: (tokens now, tokens left) each, which ends after its last token."""
    num_now = sum(-(-length // page_size) for length, _ in sequences)
    steps = range(1, max(left for _, left in sequences) + 1)
    held = (
        sum(-(-(length + step) // page_size) for length, left in sequences if step <= left)
        for step in steps
    )
    return max(0, max(held) - num_now)


@given(
    sequences=st.lists(st.tuples(st.integers(1, 100), st.integers(1, 100)), min_size=1, max_size=8),
    page_size=st.sampled_from([1, 4, 16]),
)
def test_known_lengths_are_forecast_as_a_simulation_has_them(
    sequences: list[tuple[int, int]], page_size: int
) -> None:
    growths = [
        growth(left, num_fitting=-length % page_size, num_pages=-(-length // page_size))
        for length, left in sequences
    ]
    forecast = GrowthForecast(OutputLengths(), page_size=page_size)
    needed = num_pages_needed(sequences, page_size)
    assert forecast.fits(growths, num_pages=needed, num_steps=math.inf)
    assert needed == 0 or not forecast.fits(growths, num_pages=needed - 1, num_steps=math.inf)
