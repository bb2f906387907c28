"""MinuteWindow: what a minute's figures are made of, and that they do not grow."""

import pytest

from gateway.minute_window import MAX_SAMPLES, WINDOW_S, MinuteWindow

S = 1_000_000_000
START = 1_000 * S


def window() -> MinuteWindow:
    return MinuteWindow(START)


def test_tokens_are_counted_by_the_second_that_they_came_in() -> None:
    seen = window()
    seen.count_tokens(3, START + 5 * S)
    seen.count_tokens(4, START + 5 * S + S - 1)
    seen.count_tokens(2, START + 6 * S)
    figures = seen.figures(START + 10 * S)
    assert list(figures.tokens_by_second[-5:]) == [7, 2, 0, 0, 0]
    assert figures.output_tok_s == pytest.approx(9 / 10)


def test_the_second_that_has_just_begun_is_not_told_yet() -> None:
    seen = window()
    seen.count_tokens(5, START + 30 * S)
    assert seen.figures(START + 30 * S + 1).output_tok_s == 0
    assert seen.figures(START + 31 * S).tokens_by_second[-1] == 5


def test_what_is_older_than_a_minute_counts_no_more() -> None:
    seen = window()
    seen.count_tokens(60, START)
    seen.add_ttft(1.0, START)
    seen.add_tpot(2.0, START)
    seen.add_prompt(10, 5, START)
    full = seen.figures(START + WINDOW_S * S - 1)
    assert (full.ttft_p50_s, full.tpot_p50_s, full.hit_rate, full.num_requests) == (
        1.0,
        2.0,
        0.5,
        1,
    )
    assert seen.figures(START + WINDOW_S * S).output_tok_s == 1.0
    later = seen.figures(START + (WINDOW_S + 1) * S)
    assert (later.output_tok_s, later.ttft_p50_s, later.tpot_p95_s) == (0, None, None)
    assert (later.hit_rate, later.num_requests, later.window_s) == (None, 0, WINDOW_S)


def test_a_second_takes_the_place_of_one_that_is_over() -> None:
    seen = window()
    for minute in range(3):
        seen.count_tokens(minute + 1, START + minute * (WINDOW_S + 1) * S)
    at_s = 2 * (WINDOW_S + 1) + 1
    assert sum(seen.figures(START + at_s * S).tokens_by_second) == 3


def test_percentiles_are_measured_values() -> None:
    seen = window()
    for number in range(1, 101):
        seen.add_ttft(number / 100, START + number)
        seen.add_tpot(number / 1000, START + number)
    figures = seen.figures(START + S)
    assert (figures.ttft_p50_s, figures.ttft_p95_s) == (0.5, 0.95)
    assert (figures.tpot_p50_s, figures.tpot_p95_s) == (0.05, 0.095)


def test_the_hit_rate_is_by_tokens_and_not_by_requests() -> None:
    seen = window()
    seen.add_prompt(10, 10, START + 1)
    seen.add_prompt(90, 0, START + 2)
    figures = seen.figures(START + 3)
    assert figures.hit_rate == pytest.approx(0.1)
    assert (figures.prompt_tokens, figures.cached_tokens, figures.num_requests) == (100, 10, 2)


def test_a_clock_that_is_set_back_shows_nothing_of_the_future() -> None:
    seen = window()
    seen.count_tokens(7, START + 50 * S)
    figures = seen.figures(START + 20 * S)
    assert figures.output_tok_s == 0
    assert seen.figures(START - S).window_s == 0


def test_of_very_many_requests_the_latest_are_looked_at() -> None:
    seen = window()
    for number in range(MAX_SAMPLES + 10):
        seen.add_ttft(0.0 if number < 10 else 1.0, START + number)
        seen.add_prompt(1, 0, START + number)
    figures = seen.figures(START + S)
    assert figures.num_requests == MAX_SAMPLES
    assert figures.ttft_p50_s == 1.0
