"""JSON numbers within bounds, and multiples of decimal steps, as Rust regexes.

Values are compared as decimals. Where a validator that reads doubles could see another order, the
numbers in question are left out: those next to an exclusive bound, and fractions so small beside
their whole part that the number would read as whole.
"""

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

from grammar.schema.decimal_digits import (
    MAX_DIGITS,
    alternatives,
    fractions_between,
    fractions_from,
    fractions_to,
    whole_numbers,
)

# Decimals of so many digits that differ are different doubles.
EXACT_DIGITS = 15
# Significant digits that tell every double from its neighbours.
DOUBLE_DIGITS = 17
TINIEST = Fraction(1, 10**MAX_DIGITS)
WHOLE = f"(?:0|[1-9][0-9]{{0,{MAX_DIGITS - 1}}})"
FRACTION = rf"\.[0-9]{{1,{MAX_DIGITS}}}"
# Below the largest double, 1.7976931348623157e308, with one digit before the point.
EXPONENT = "(?:0?[0-9]|[1-9][0-9]|[12][0-9]{2}|30[0-7])"
LAST_EXPONENT = r"1(?:\.(?:[0-6][0-9]{0,62}|7[0-8]?|7[0-8][0-9]{1,61}))?[eE]\+?308"
ANY_NUMBER = (
    f"-?(?:{WHOLE}(?:{FRACTION})?|[0-9](?:{FRACTION})?[eE]"
    rf"(?:\+?{EXPONENT}|-[0-9]{{1,3}})|{LAST_EXPONENT})"
)
# Steps whose multiples are told by more digits than these are left to others.
MAX_STEP_DIGITS = 3
MAX_STEP_PLACES = 6


@dataclass(frozen=True, slots=True)
class Bound:
    """`value` is a finite decimal."""

    value: Fraction
    is_exclusive: bool = False


def number_regex(low: Bound | None, high: Bound | None, *, integer: bool | None) -> str | None:
    """The numbers between the bounds: whole ones without fraction and exponent (True), such that
    are not whole (False), or all (None), then also with a fraction of zeros and, where there is no
    bound, with an exponent. None where there is no such number."""
    if low is None and high is None and integer is None:
        return ANY_NUMBER
    least = None if low is None else _inclusive(low, upwards=True)
    most = None if high is None else _inclusive(high, upwards=False)
    found: list[str] = []
    if most is None or most >= 0:
        found += _magnitudes(max(least or Fraction(0), Fraction(0)), most, integer=integer)
    if least is None or least <= 0:
        smallest = Fraction(0) if most is None or most > 0 else -most
        smallest = max(smallest, Fraction(1)) if integer else smallest
        largest = None if least is None else -least
        negative = _magnitudes(smallest, largest, integer=integer)
        found += [f"-{alternatives(negative)}"] if negative else []
    return alternatives(found) if found else None


def multiple_of_regex(step: Fraction) -> str | None:
    """The multiples of a positive step, in all spellings of number_regex without an exponent; to
    be intersected with that. None where the last digits do not tell a multiple."""
    shape = _step_shape(step)
    return None if shape is None else f"-?{alternatives(_with_residues(shape, is_multiple=True))}"


def not_multiple_of_regex(step: Fraction) -> str | None:
    """The numbers that are no multiples, of few enough digits to be none as doubles either; to be
    intersected with number_regex. None where the last digits do not tell a multiple."""
    shape = _step_shape(step)
    if shape is None:
        return None
    most_whole = EXACT_DIGITS - MAX_STEP_PLACES - 1
    beyond = (
        rf"(?:0|[1-9][0-9]{{0,{most_whole - 1}}})"
        rf"\.[0-9]{{{shape.num_places},{MAX_STEP_PLACES}}}[1-9]0{{0,{MAX_DIGITS}}}"
    )
    return f"-?{alternatives([*_with_residues(shape, is_multiple=False), beyond])}"


def _inclusive(bound: Bound, *, upwards: bool) -> Fraction:
    """The bound, or what comes next to an exclusive one as a double too."""
    sign = 1 if upwards else -1
    if not bound.is_exclusive:
        return bound.value
    if bound.value == 0:
        return sign * TINIEST
    try:
        neighbour = math.nextafter(float(bound.value), sign * math.inf)
        rounding = ROUND_CEILING if upwards else ROUND_FLOOR
        context = Context(prec=DOUBLE_DIGITS, rounding=rounding, Emax=999999, Emin=-999999)
        return Fraction(context.plus(Decimal(neighbour)))
    except (OverflowError, ValueError):  # beyond all doubles, and all numbers of MAX_DIGITS
        return bound.value


def _magnitudes(low: Fraction, high: Fraction | None, *, integer: bool | None) -> list[str]:
    """Numbers without a sign; `low` is not negative."""
    if high is not None and high < low:
        return []
    if integer:
        return whole_numbers(math.ceil(low), None if high is None else math.floor(high))
    first, last = math.floor(low), None if high is None else math.floor(high)
    low_digits, high_digits = _places(low), _places(high or Fraction(0))
    if first == last:
        return _fractional(str(first), low_digits, high_digits, integer=integer)
    found: list[str] = []
    if low_digits:
        found += _fractional(str(first), low_digits, None, integer=integer)
        first += 1
    found += _between(first, None if last is None else last - 1, integer=integer)
    if last is not None:
        found += _fractional(str(last), "", high_digits, integer=integer)
    return found


def _between(first: int, last: int | None, *, integer: bool | None) -> list[str]:
    """All whole parts from first to last, with any fraction."""
    if integer is None:
        all_whole = whole_numbers(first, last)
        return [f"{alternatives(all_whole)}(?:{FRACTION})?"] if all_whole else []
    found: list[str] = []
    for num_digits in range(1, EXACT_DIGITS):
        least = max(first, 10 ** (num_digits - 1) if num_digits > 1 else 0)
        most = 10**num_digits - 1 if last is None else min(last, 10**num_digits - 1)
        if least <= most:
            whole = alternatives(whole_numbers(least, most))
            room = EXACT_DIGITS - num_digits
            digits, _ = fractions_from("1".rjust(room, "0"), room)
            found.append(rf"{whole}\.{alternatives(digits)}")
    return found


def _fractional(whole: str, low: str, high: str | None, *, integer: bool | None) -> list[str]:
    """One whole part with fractions between the two; None: up to the next whole number."""
    room = MAX_DIGITS if integer is None else EXACT_DIGITS - len(whole)
    if room < 1 or len(whole) > MAX_DIGITS:
        return []
    if integer is False:
        low = max(low, "1".rjust(room, "0"))
    if high is not None and low > high:
        return []
    if high is None:
        digits, is_bare = fractions_from(low, room)
    elif low:
        digits, is_bare = fractions_between(low, high, room)
    else:
        digits, is_bare = fractions_to(high, room)
    found = [rf"{whole}\.{alternatives(digits)}"] if digits else []
    return found + ([whole] if is_bare else [])


def _places(value: Fraction) -> str:
    """The digits behind the point, without zeros at the end."""
    numerator, denominator = value.numerator % value.denominator, value.denominator
    twos = (denominator & -denominator).bit_length() - 1
    fives, rest = 0, denominator >> twos
    while rest % 5 == 0:
        rest //= 5
        fives += 1
    if rest != 1:
        raise ValueError(f"{value} is not a finite decimal")
    width = max(twos, fives)
    return str(numerator * 10**width // denominator).rjust(width, "0") if width else ""


@dataclass(frozen=True, slots=True)
class _StepShape:
    """A number is a multiple iff its last `num_digits` digits are, the number written with
    `num_places` places and without its point; `step` is scaled in the same way."""

    step: int
    num_digits: int
    num_places: int


def _step_shape(step: Fraction) -> _StepShape | None:
    if step <= 0:
        return None
    for num_places in range(MAX_STEP_PLACES + 1):
        scaled = step * 10**num_places
        if scaled.denominator == 1:
            for num_digits in range(MAX_STEP_DIGITS + 1):
                if 10**num_digits % scaled.numerator == 0:
                    return _StepShape(scaled.numerator, num_digits, num_places)
            return None
    return None


def _with_residues(shape: _StepShape, *, is_multiple: bool) -> list[str]:
    """Numbers whose last digits are, or are not, those of a multiple."""
    by_end: dict[str, list[str]] = {}
    num_whole = max(shape.num_digits - shape.num_places, 0)
    for residue in range(10**shape.num_digits):
        if (residue % shape.step == 0) == is_multiple:
            digits = str(residue).rjust(shape.num_digits, "0") if shape.num_digits else ""
            by_end.setdefault(digits[num_whole:], []).append(digits[:num_whole])
    num_free = max(shape.num_places - shape.num_digits, 0)
    max_whole = MAX_DIGITS if is_multiple else EXACT_DIGITS - shape.num_places
    return [
        f"{_whole_ending(ends, max_whole)}{_places_ending(digits, num_free)}"
        for digits, ends in by_end.items()
    ]


def _whole_ending(ends: list[str], max_digits: int) -> str:
    """Whole parts that end with one of these digit strings, all of one length."""
    width = len(ends[0])
    if not width:
        return f"(?:0|[1-9][0-9]{{0,{max_digits - 1}}})"
    short = [str(int(end)) for end in ends]
    return f"(?:{'|'.join(short)}|[1-9][0-9]{{0,{max_digits - width - 1}}}{alternatives(ends)})"


def _places_ending(digits: str, num_free: int) -> str:
    """Fractions of any digits, then these; zeros at the end may be more or missing."""
    core = digits.rstrip("0")
    if core:
        return rf"\.[0-9]{{{num_free}}}{core}0{{0,{MAX_DIGITS}}}"
    free = f"[0-9]{{1,{num_free}}}0{{0,{MAX_DIGITS}}}|" if num_free else ""
    return rf"(?:\.(?:{free}0{{1,{MAX_DIGITS}}}))?"
