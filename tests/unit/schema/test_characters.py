"""Sets of characters: ranges and named classes, joined, inverted, taken apart."""

import pytest

from grammar.schema.characters import (
    EVERY,
    NO_CHARACTERS,
    Ranges,
    characters,
    common,
    contains,
    inverted,
    joined,
    named,
    ranges,
    single,
    without,
)

LETTERS_OR_DIGITS = joined(named("L"), ranges([(0x30, 0x39)]))


def test_ranges_are_sorted_and_those_that_touch_become_one() -> None:
    assert ranges([(5, 9), (1, 2), (3, 4), (20, 30), (25, 26)]).bounds == ((1, 9), (20, 30))


def test_surrogates_are_never_characters() -> None:
    assert ranges([(0xD000, 0xE001)]).bounds == ((0xD000, 0xD7FF), (0xE000, 0xE001))
    assert inverted(EVERY) == NO_CHARACTERS


def test_the_complement_of_the_complement_is_the_set() -> None:
    for members in (characters("abcx"), LETTERS_OR_DIGITS, named("Nd"), NO_CHARACTERS):
        assert inverted(inverted(members)) == members


@pytest.mark.parametrize(
    ("character", "is_in"), [("a", True), ("é", True), ("7", True), ("٣", False), ("-", False)]
)
def test_a_named_class_joins_ranges_without_being_enumerated(character: str, is_in: bool) -> None:
    assert contains(LETTERS_OR_DIGITS, ord(character)) is is_in
    assert contains(inverted(LETTERS_OR_DIGITS), ord(character)) is not is_in


def test_what_is_taken_out_of_a_named_class_is_out() -> None:
    members = without(named("L"), characters("xyz"))
    assert [c for c in "awxyzé" if contains(members, ord(c))] == ["a", "w", "é"]
    assert not contains(common(members, characters("x1")), ord("1"))


def test_a_set_of_one_character_is_known_as_such() -> None:
    assert single(characters("q")) == "q"
    assert single(characters("qr")) is None
    assert single(Ranges(())) is None
