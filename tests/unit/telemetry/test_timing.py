"""TTFT, ITL and TPOT as the server defines them."""

import pytest

from telemetry.duration_sketch import DurationSketch
from telemetry.timing import InterToken, StreamTimer

MS = 1_000_000


def test_ttft_is_from_the_start_to_the_first_token_of_any_choice() -> None:
    timer = StreamTimer(start_ns=10 * MS)
    timer.observe(1, 15 * MS, choice=1)
    timer.observe(1, 16 * MS, choice=0)
    assert timer.ttft_s == 0.005
    assert timer.first_token_ns == 15 * MS


def test_a_delta_without_tokens_is_no_arrival() -> None:
    timer = StreamTimer(start_ns=0)
    assert timer.observe(0, 5 * MS) is None
    assert (timer.first_token_ns, timer.ttft_s) == (None, None)


def test_a_delta_of_four_tokens_counts_four_gaps_of_a_quarter() -> None:
    timer = StreamTimer(start_ns=0)
    assert timer.observe(1, 10 * MS) is None
    assert timer.observe(4, 30 * MS) == InterToken(seconds=0.005, num_tokens=4)
    assert timer.observe(1, 31 * MS) == InterToken(seconds=0.001, num_tokens=1)


def test_gaps_are_within_a_choice() -> None:
    timer = StreamTimer(start_ns=0)
    timer.observe(1, 1 * MS, choice=0)
    assert timer.observe(1, 9 * MS, choice=1) is None
    assert timer.observe(1, 11 * MS, choice=0) == InterToken(0.01, 1)


def test_gaps_are_kept_where_somebody_asks_for_them() -> None:
    gaps = DurationSketch()
    timer = StreamTimer(start_ns=0, gaps=gaps)
    for choice, num_tokens, at_ms in ((0, 3, 1), (1, 1, 2), (0, 4, 9), (1, 1, 34)):
        timer.observe(num_tokens, at_ms * MS, choice=choice)
    assert gaps.count == 5
    assert gaps.quantile_ms(0.5) == pytest.approx(2, rel=1 / 64)
    assert gaps.quantile_ms(1.0) == pytest.approx(32, rel=1 / 64)


def test_a_clock_that_steps_back_gives_zero_and_never_less() -> None:
    timer = StreamTimer(start_ns=10 * MS)
    timer.observe(1, 9 * MS)
    assert timer.ttft_s == 0.0
    assert timer.observe(1, 8 * MS) == InterToken(0.0, 1)


def test_tpot_is_the_time_after_the_first_token_over_the_tokens_after_it() -> None:
    timer = StreamTimer(start_ns=0)
    timer.observe(1, 10 * MS)
    assert timer.tpot_s is None
    timer.observe(1, 20 * MS)
    timer.observe(2, 40 * MS)
    assert timer.tpot_s == 0.01


def test_tpot_counts_what_comes_with_the_first_token_as_tokens_after_it() -> None:
    timer = StreamTimer(start_ns=0)
    timer.observe(3, 10 * MS)
    timer.observe(1, 40 * MS)
    assert timer.tpot_s == 0.01


def test_an_answer_that_came_at_once_has_no_tpot() -> None:
    timer = StreamTimer(start_ns=0)
    timer.observe(5, 10 * MS)
    timer.observe(1, 10 * MS, choice=1)
    assert timer.tpot_s is None


def test_tpot_of_several_choices_is_of_all_their_tokens() -> None:
    timer = StreamTimer(start_ns=0)
    for choice, at_ms in ((0, 10), (1, 30), (0, 20), (1, 60), (0, 30)):
        timer.observe(1, at_ms * MS, choice=choice)
    assert timer.tpot_s == (20 + 30) / 3 / 1000
