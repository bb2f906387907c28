"""Regexes of digit strings between two bounds, against every short string."""

import re
from itertools import product

import pytest

from grammar.schema.decimal_digits import (
    fractions_between,
    fractions_from,
    fractions_to,
    whole_numbers,
)

# Digits where carrying, both ends of the range and its middle differ.
STRINGS = ["".join(digits) for width in range(1, 4) for digits in product("01289", repeat=width)]
BOUNDS = ["", *(text for text in STRINGS if len(text) < 3 and text[-1] != "0")]


def matched(patterns: list[str]) -> list[str]:
    pattern = re.compile("|".join(patterns) or r"(?!)")
    return [text for text in STRINGS if pattern.fullmatch(text)]


def value(digits: str) -> int:
    return int(digits.ljust(4, "0"))


@pytest.mark.parametrize("low", BOUNDS)
def test_fractions_are_not_below_the_low_end(low: str) -> None:
    patterns, is_bare = fractions_from(low, 3)
    assert matched(patterns) == [text for text in STRINGS if value(text) >= value(low)]
    assert is_bare == (low == "")


@pytest.mark.parametrize("high", BOUNDS)
def test_fractions_are_not_above_the_high_end(high: str) -> None:
    patterns, is_bare = fractions_to(high, 3)
    assert matched(patterns) == [text for text in STRINGS if value(text) <= value(high)]
    assert is_bare


@pytest.mark.parametrize("low", BOUNDS)
def test_fractions_are_between_both_ends(low: str) -> None:
    for high in (bound for bound in BOUNDS if value(bound) >= value(low)):
        patterns, is_bare = fractions_between(low, high, 3)
        expected = [text for text in STRINGS if value(low) <= value(text) <= value(high)]
        assert matched(patterns) == expected, high
        assert is_bare == (low == "")


def test_bounds_longer_than_the_room_are_cut_to_the_right_side() -> None:
    assert matched(fractions_from("8981", 3)[0]) == [t for t in STRINGS if value(t) >= 8981]
    assert matched(fractions_to("8981", 3)[0]) == [t for t in STRINGS if value(t) <= 8981]
    assert matched(fractions_between("0181", "1809", 3)[0]) == [
        text for text in STRINGS if 181 <= value(text) <= 1809
    ]


def test_long_runs_of_one_digit_stay_short() -> None:
    patterns, _ = fractions_from("0" * 40 + "1", 64)
    assert len("|".join(patterns)) < 140
    assert re.fullmatch("|".join(patterns), "0" * 40 + "1")
    assert not re.fullmatch("|".join(patterns), "0" * 41 + "9")


@pytest.mark.parametrize("low", [0, 1, 8, 9, 10, 11, 19, 89, 90, 99, 100, 101, 109, 110, 999])
def test_whole_numbers_are_between_both_ends(low: int) -> None:
    for high in (0, 7, 9, 10, 12, 99, 100, 105, 123, 199, 1000, 1100):
        pattern = re.compile("|".join(whole_numbers(low, high)) or r"(?!)")
        found = [number for number in range(1300) if pattern.fullmatch(str(number))]
        assert found == list(range(low, high + 1)), high
        assert not pattern.fullmatch(f"0{high}")


def test_whole_numbers_without_an_end_have_at_most_64_digits() -> None:
    pattern = "|".join(whole_numbers(12, None))
    assert re.fullmatch(pattern, "9" * 64)
    assert not re.fullmatch(pattern, "1" + "0" * 64)
    assert not re.fullmatch(pattern, "11")
