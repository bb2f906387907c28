"""Sets of numbers: unions of intervals, each perhaps of whole or of fractional numbers only, of
multiples or of anything but multiples. Exact: bounds are fractions, never doubles.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from grammar.schema.numbers import Bound

ONE = Fraction(1)


@dataclass(frozen=True, slots=True)
class NumberCell:
    """`is_whole` None: both kinds. `multiple_of` None: any; `not_multiples_of` excludes."""

    low: Bound | None = None
    high: Bound | None = None
    is_whole: bool | None = None
    multiple_of: Fraction | None = None
    not_multiples_of: frozenset[Fraction] = frozenset()

    def intersect(self, with_: "NumberCell") -> "NumberCell | None":
        """None where no number is in both."""
        if None not in (self.is_whole, with_.is_whole) and self.is_whole != with_.is_whole:
            return None
        joined = NumberCell(
            low=_tighter(self.low, with_.low, is_low=True),
            high=_tighter(self.high, with_.high, is_low=False),
            is_whole=with_.is_whole if self.is_whole is None else self.is_whole,
            multiple_of=_common_multiple(self.multiple_of, with_.multiple_of),
            not_multiples_of=self.not_multiples_of | with_.not_multiples_of,
        )
        return joined.settled()

    def settled(self) -> "NumberCell | None":
        """The same numbers in the plainest form; None for none at all."""
        cell = self
        if cell.multiple_of is not None and cell.multiple_of.denominator == 1:
            if cell.is_whole is False:
                return None
            cell = replace(cell, is_whole=True)
        if cell.is_whole and cell.multiple_of is not None:
            whole = _common_multiple(cell.multiple_of, ONE)
            cell = replace(cell, multiple_of=None if whole == ONE else whole)
        if cell.is_whole and any(_divides(d, ONE) for d in cell.not_multiples_of):
            return None
        if cell.multiple_of and any(_divides(d, cell.multiple_of) for d in cell.not_multiples_of):
            return None
        if cell.is_whole:
            cell = replace(cell, low=_whole_low(cell.low), high=_whole_high(cell.high))
        if cell.multiple_of is not None:
            cell = replace(
                cell,
                low=_multiple_low(cell.low, cell.multiple_of),
                high=_multiple_high(cell.high, cell.multiple_of),
            )
        return None if cell._is_void() else cell

    def complement(self) -> "tuple[NumberCell, ...]":
        """All other numbers; the parts may overlap."""
        parts: list[NumberCell] = []
        if self.low is not None:
            parts.append(NumberCell(high=Bound(self.low.value, not self.low.is_exclusive)))
        if self.high is not None:
            parts.append(NumberCell(low=Bound(self.high.value, not self.high.is_exclusive)))
        if self.is_whole is not None:
            parts.append(NumberCell(is_whole=not self.is_whole))
        if self.multiple_of is not None:
            excluded = frozenset({self.multiple_of})
            parts.append(NumberCell(not_multiples_of=excluded))
        parts += [NumberCell(multiple_of=d) for d in sorted(self.not_multiples_of)]
        return tuple(cell for part in parts if (cell := part.settled()) is not None)

    def has(self, number: Fraction) -> bool:
        if self.low is not None and not _is_above(number, self.low):
            return False
        if self.high is not None and not _is_below(number, self.high):
            return False
        if self.is_whole is not None and (number.denominator == 1) != self.is_whole:
            return False
        if self.multiple_of is not None and not _divides(self.multiple_of, number):
            return False
        return not any(_divides(d, number) for d in self.not_multiples_of)

    @property
    def only_value(self) -> Fraction | None:
        """The number, where there is one alone."""
        if self.low is None or self.high is None or self.low.value != self.high.value:
            return None
        return self.low.value

    def _is_void(self) -> bool:
        if self.low is None or self.high is None:
            return False
        if self.low.value != self.high.value:
            return self.low.value > self.high.value
        is_open = self.low.is_exclusive or self.high.is_exclusive
        return is_open or not replace(self, low=None, high=None).has(self.low.value)


ALL_NUMBERS = NumberCell()


def single_number(value: Fraction) -> NumberCell:
    bound = Bound(value)
    return NumberCell(low=bound, high=bound)


def _tighter(one: Bound | None, other: Bound | None, *, is_low: bool) -> Bound | None:
    if one is None or other is None:
        return other if one is None else one
    if one.value == other.value:
        return one if one.is_exclusive else other
    return one if (one.value > other.value) == is_low else other


def _common_multiple(one: Fraction | None, other: Fraction | None) -> Fraction | None:
    if one is None or other is None:
        return other if one is None else one
    return Fraction(
        math.lcm(one.numerator * other.denominator, other.numerator * one.denominator),
        one.denominator * other.denominator,
    )


def _divides(divisor: Fraction, number: Fraction) -> bool:
    return (number / divisor).denominator == 1


def _whole_low(bound: Bound | None) -> Bound | None:
    if bound is None:
        return None
    value = math.ceil(bound.value)
    return Bound(
        Fraction(value + (bound.is_exclusive and value == bound.value)), is_exclusive=False
    )


def _whole_high(bound: Bound | None) -> Bound | None:
    if bound is None:
        return None
    value = math.floor(bound.value)
    return Bound(
        Fraction(value - (bound.is_exclusive and value == bound.value)), is_exclusive=False
    )


def _multiple_low(bound: Bound | None, step: Fraction) -> Bound | None:
    """The first multiple from the bound on."""
    first = None if bound is None else _whole_low(Bound(bound.value / step, bound.is_exclusive))
    return None if first is None else Bound(first.value * step)


def _multiple_high(bound: Bound | None, step: Fraction) -> Bound | None:
    """The last multiple up to the bound."""
    last = None if bound is None else _whole_high(Bound(bound.value / step, bound.is_exclusive))
    return None if last is None else Bound(last.value * step)


def _is_above(number: Fraction, low: Bound) -> bool:
    return number > low.value or (number == low.value and not low.is_exclusive)


def _is_below(number: Fraction, high: Bound) -> bool:
    return number < high.value or (number == high.value and not high.is_exclusive)
