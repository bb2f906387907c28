"""Sets of numbers: intersection, complement and emptiness against membership, number by number."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grammar.schema.number_cells import ALL_NUMBERS, NumberCell, single_number
from grammar.schema.numbers import Bound

NUMBERS = [Fraction(n, 12) for n in range(-60, 61)]
BOUNDS = st.none() | st.builds(Bound, st.sampled_from(NUMBERS[24:97]), st.booleans())
DIVISORS = st.sampled_from([Fraction(1), Fraction(2), Fraction(3), Fraction(1, 2), Fraction(3, 4)])
CELLS = st.builds(
    NumberCell,
    low=BOUNDS,
    high=BOUNDS,
    is_whole=st.sampled_from([None, True, False]),
    multiple_of=st.none() | DIVISORS,
    not_multiples_of=st.frozensets(DIVISORS, max_size=1),
)
SETTINGS = settings(max_examples=200, deadline=None, derandomize=True)


def members(cell: NumberCell | None) -> list[Fraction]:
    return [] if cell is None else [number for number in NUMBERS if cell.has(number)]


@SETTINGS
@given(cell=CELLS)
def test_the_plainest_form_has_the_same_numbers(cell: NumberCell) -> None:
    settled = cell.settled()
    assert members(settled) == members(cell)
    if settled is not None:
        assert settled.settled() == settled


@SETTINGS
@given(one=CELLS, other=CELLS)
def test_an_intersection_has_what_both_have(one: NumberCell, other: NumberCell) -> None:
    assert members(one.intersect(other)) == [n for n in members(one) if other.has(n)]


@SETTINGS
@given(cell=CELLS)
def test_a_complement_has_all_others(cell: NumberCell) -> None:
    parts = cell.complement()
    for number in NUMBERS:
        assert any(part.has(number) for part in parts) != cell.has(number)


@pytest.mark.parametrize(
    "cell",
    [
        NumberCell(low=Bound(Fraction(2)), high=Bound(Fraction(1))),
        NumberCell(low=Bound(Fraction(1), is_exclusive=True), high=Bound(Fraction(1))),
        NumberCell(low=Bound(Fraction(1, 3)), high=Bound(Fraction(2, 3)), is_whole=True),
        NumberCell(low=Bound(Fraction(1)), high=Bound(Fraction(5)), multiple_of=Fraction(7)),
        NumberCell(is_whole=False, multiple_of=Fraction(3)),
        NumberCell(multiple_of=Fraction(6), not_multiples_of=frozenset({Fraction(3)})),
        NumberCell(is_whole=True, not_multiples_of=frozenset({Fraction(1, 2)})),
    ],
)
def test_contradictions_are_seen(cell: NumberCell) -> None:
    assert cell.settled() is None


def test_bounds_move_to_the_numbers_that_are_left() -> None:
    cell = NumberCell(Bound(Fraction(1, 2)), Bound(Fraction(10), is_exclusive=True), is_whole=True)
    assert cell.settled() == NumberCell(Bound(Fraction(1)), Bound(Fraction(9)), is_whole=True)
    fours = NumberCell(Bound(Fraction(1)), Bound(Fraction(10)), multiple_of=Fraction(4)).settled()
    assert fours is not None
    assert (fours.low, fours.high) == (Bound(Fraction(4)), Bound(Fraction(8)))


def test_of_two_equal_bounds_the_exclusive_one_is_tighter() -> None:
    closed, open_ = Bound(Fraction(1)), Bound(Fraction(1), is_exclusive=True)
    for one, other in ((closed, open_), (open_, closed)):
        assert NumberCell(low=one).intersect(NumberCell(low=other)) == NumberCell(low=open_)
        assert NumberCell(high=one).intersect(NumberCell(high=other)) == NumberCell(high=open_)


def test_multiples_of_two_numbers_are_multiples_of_their_least_common_one() -> None:
    joined = NumberCell(multiple_of=Fraction(3, 4)).intersect(
        NumberCell(multiple_of=Fraction(1, 2))
    )
    assert joined is not None
    assert joined.multiple_of == Fraction(3, 2)


def test_a_single_number_is_known_as_such() -> None:
    assert single_number(Fraction(5, 2)).only_value == Fraction(5, 2)
    assert ALL_NUMBERS.only_value is None
    assert NumberCell(Bound(Fraction(1)), Bound(Fraction(2))).only_value is None
