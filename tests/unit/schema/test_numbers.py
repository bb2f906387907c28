"""Regexes of JSON numbers within bounds, against exact comparison."""

import json
import re
from fractions import Fraction

import pytest

from grammar.schema.numbers import (
    Bound,
    multiple_of_regex,
    not_multiple_of_regex,
    number_regex,
)


def bound(text: str | None) -> Bound | None:
    """ "3" is inclusive, "<3" and ">3" are exclusive."""
    if text is None:
        return None
    return Bound(Fraction(text.strip("<>")), is_exclusive=text[0] in "<>")


def allowed(low: str | None, high: str | None, texts: str, *, integer: bool | None) -> str:
    pattern = number_regex(bound(low), bound(high), integer=integer)
    assert pattern is not None
    return " ".join(text for text in texts.split() if re.fullmatch(pattern, text))


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        ("0", None, "0 0.0 -0 -0.0 0.001 9.99 10 10.0 10.5 11 100 1234567"),
        (">0", None, "0.001 9.99 10 10.0 10.5 11 100 1234567"),
        (None, "<0", "-0.001 -1 -9.5 -10 -11"),
        (None, "0", "0 0.0 -0 -0.0 -0.001 -1 -9.5 -10 -11"),
        ("10", "10", "10 10.0"),
        (">9.99", "<10.5", "10 10.0"),
        ("9.99", "10.5", "9.99 10 10.0 10.5"),
        ("-10", "<-1", "-9.5 -10"),
        ("-1", ">0.001", "0 0.0 -0 -0.0 -0.001 -1"),
        (">100", None, "1234567"),
    ],
)
def test_bounds_compare_decimals(low: str | None, high: str | None, expected: str) -> None:
    texts = "0 0.0 -0 -0.0 0.001 -0.001 -1 -9.5 -10 -11 9.99 10 10.0 10.5 11 100 1234567"
    assert allowed(low, high, texts, integer=None).split() == [
        text for text in texts.split() if text in expected.split()
    ]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (None, None, "0 7 -7 10 123"),
        ("0", None, "0 7 10 123"),
        (">0", "<10", "7"),
        ("-7", "9.99", "0 7 -7"),
        ("9.5", "10.5", "10"),
        (None, "<0", "-7"),
    ],
)
def test_integers_have_no_fraction_and_one_zero(
    low: str | None, high: str | None, expected: str
) -> None:
    texts = "0 -0 7 -7 10 123 01 7.0 7e0 1.5 +7"
    assert allowed(low, high, texts, integer=True) == expected


def test_numbers_that_are_not_whole_have_a_fraction_that_is_not_zero() -> None:
    texts = "0 1 1.0 1.50 -0.0 -0.25 1e-1 99.00 99.001 100.5"
    assert allowed(None, None, texts, integer=False) == "1.50 -0.25 99.001 100.5"
    assert allowed(">1.5", "<99.5", texts, integer=False) == "99.001"


@pytest.mark.parametrize(
    "text",
    [
        "1e5", "1.5E+10", "-2e-05", "9.99e307", "1.7e308", "1.78e308", "1e-999", "0e0", "123.456",
        "1" * 64, "0." + "1" * 64,
    ],
)  # fmt: skip
def test_a_number_without_bounds_may_have_an_exponent(text: str) -> None:
    pattern = number_regex(None, None, integer=None)
    assert pattern is not None
    assert re.fullmatch(pattern, text)
    assert abs(float(text)) < float("inf")


@pytest.mark.parametrize(
    "text",
    ["1e309", "1.8e308", "2e308", "10e5", "1e1000", ".5", "1.", "01", "1e", "+1", "1" * 65, "-"],
)
def test_what_is_no_finite_number_is_not_allowed(text: str) -> None:
    pattern = number_regex(None, None, integer=None)
    assert pattern is not None
    assert not re.fullmatch(pattern, text)


@pytest.mark.parametrize(
    ("low", "high", "integer"),
    [
        ("2", "1", None),
        (">1", "1", None),
        (">1", "<1", None),
        ("1.1", "1.9", True),
        (">0", "<1", True),
        ("1", "1", False),
        ("1" + "0" * 64, None, None),
        (None, "-1" + "0" * 64, True),
    ],
)
def test_an_empty_range_has_no_regex(low: str, high: str, integer: bool | None) -> None:
    assert number_regex(bound(low), bound(high), integer=integer) is None


def test_what_reads_as_an_exclusive_bound_is_left_out() -> None:
    almost = "0." + "9" * 20
    assert float(almost) == 1.0
    assert allowed(None, "<1", f"{almost} 0.999999999999999", integer=None) == "0.999999999999999"
    assert allowed(None, "1", almost, integer=None) == almost
    assert allowed(None, None, "1.00000000000000000001", integer=False) == ""


def test_bounds_of_hundreds_of_digits_are_compared() -> None:
    huge = "1" + "0" * 399
    tiny = "0." + "0" * 398 + "1"
    assert allowed(None, huge, "5 -5", integer=None) == "5 -5"
    assert allowed(tiny, None, "5 0 -5 0.1", integer=None) == "5 0.1"
    assert allowed(f"-{tiny}", tiny, "0 0.0 0.1", integer=None) == "0 0.0"


def test_a_bound_that_is_no_finite_decimal_is_an_error() -> None:
    with pytest.raises(ValueError, match="1/3"):
        number_regex(Bound(Fraction(1, 3)), None, integer=None)


@pytest.mark.parametrize(
    ("step", "multiples", "others"),
    [
        ("1", "0 1 7.0 -12 12.000", "0.5 -1.01 7.10"),
        ("10", "0 10 -120 100.0", "1 15 10.5 0.1"),
        ("4", "0 4 8 12 100 -16.0", "1 2 6 10 14 102 4.5"),
        ("0.5", "0 0.5 1.50 -7 2.5", "0.25 0.1 1.51 -0.05"),
        ("0.25", "0.25 1.5 3 -2.750", "0.2 0.3 1.05 0.125"),
        ("0.01", "0.01 3 1.10 -12.3 7.120", "0.001 1.015 -3.1234"),
        ("2.5", "0 2.5 5 7.50 10 -12.5", "1 2.25 4 6.5 12"),
        ("125", "0 125 250 1000 -1125.0", "1 25 100 1100 125.5"),
    ],
)
def test_multiples_are_told_by_their_last_digits(step: str, multiples: str, others: str) -> None:
    multiple = multiple_of_regex(Fraction(step))
    no_multiple = not_multiple_of_regex(Fraction(step))
    assert multiple is not None
    assert no_multiple is not None
    texts = f"{multiples} {others}".split()
    assert [text for text in texts if re.fullmatch(multiple, text)] == multiples.split()
    assert [text for text in texts if re.fullmatch(no_multiple, text)] == others.split()


@pytest.mark.parametrize("step", ["3", "7", "0.3", "16", "0.0000001", "0", "-1", "1.5"])
def test_other_steps_are_left_to_arithmetic(step: str) -> None:
    assert multiple_of_regex(Fraction(step)) is None
    assert not_multiple_of_regex(Fraction(step)) is None


def test_every_allowed_spelling_is_json() -> None:
    for text in ("-0.50", "1e-05", "12", "0.0"):
        assert allowed(None, None, text, integer=None) == text
        assert json.loads(text) == float(text)
