"""JSON values as the one text that grammars accept: compact, non-ASCII literal, plain numbers."""

import json
from fractions import Fraction

from grammar.schema_document import Json


def compact(value: Json) -> str:
    """No spaces; control characters as short or lower-case \\u00xx escapes, all else as it is."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def plain_number(value: Fraction) -> str:
    """A finite decimal without exponent, in as few digits as it needs.

    Raises: ValueError for a fraction that has no finite decimal form.
    """
    if value.denominator == 1:
        return str(value.numerator)
    scaled, num_digits = value, 0
    while scaled.denominator != 1:
        scaled, num_digits = scaled * 10, num_digits + 1
        if num_digits > 400:
            raise ValueError("the number has no finite decimal form")
    digits = str(abs(scaled.numerator)).rjust(num_digits + 1, "0")
    sign = "-" if value < 0 else ""
    return f"{sign}{digits[:-num_digits]}.{digits[-num_digits:]}"


def exact_number(value: int | float) -> Fraction:
    """The number as it is written in decimal digits; beyond 2**53 the double itself, which is then
    a whole number and what readers compare with."""
    if isinstance(value, int) or abs(value) >= FIRST_INEXACT:
        return Fraction(value)
    return Fraction(repr(value))


def number_text(value: Fraction) -> str:
    """A number as the grammars take it: plain, or with an exponent where it has many digits."""
    text = plain_number(value)
    is_double = abs(value) < MAX_DOUBLE and Fraction(float(value)) == value
    return repr(float(value)) if len(text) > MAX_PLAIN_DIGITS and is_double else text


FIRST_INEXACT = 2**53
MAX_DOUBLE = 2**1024 - 2**970
# The grammars take numbers of up to 64 digits before and after the point.
MAX_PLAIN_DIGITS = 64
