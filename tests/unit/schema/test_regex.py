"""Constructors of regular languages, membership and emptiness."""

import pytest

from grammar.errors import ConstraintTooExpensive
from grammar.schema import regex
from grammar.schema.characters import characters, named, ranges
from grammar.schema.regex import (
    ANY_CHAR,
    ANY_TEXT,
    EMPTY,
    NOTHING,
    Regex,
    both,
    cat,
    finite_texts,
    is_empty,
    length_between,
    literal,
    matches,
    one_of,
    other,
    repeat,
    union,
)

DIGIT = one_of(ranges([(0x30, 0x39)]))
HAS_A = cat(ANY_TEXT, literal("a"), ANY_TEXT)


def test_equal_languages_built_alike_are_one_object() -> None:
    assert cat(literal("a"), literal("b"), DIGIT) is cat(literal("ab"), DIGIT)
    assert union(literal("a"), literal("bc")) is union(literal("bc"), literal("a"))
    assert both(HAS_A, other(DIGIT)) is both(other(DIGIT), HAS_A)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (cat(literal("a"), NOTHING), NOTHING),
        (cat(EMPTY, HAS_A, EMPTY), HAS_A),
        (union(), NOTHING),
        (union(HAS_A, NOTHING), HAS_A),
        (union(HAS_A, ANY_TEXT), ANY_TEXT),
        (union(HAS_A, other(HAS_A)), ANY_TEXT),
        (both(), ANY_TEXT),
        (both(HAS_A, ANY_TEXT), HAS_A),
        (both(HAS_A, other(HAS_A)), NOTHING),
        (other(other(HAS_A)), HAS_A),
        (other(NOTHING), ANY_TEXT),
        (other(ANY_TEXT), NOTHING),
        (repeat(NOTHING, 0, 5), EMPTY),
        (repeat(NOTHING, 1, 5), NOTHING),
        (repeat(DIGIT, 3, 2), NOTHING),
        (repeat(repeat(DIGIT, 0, None), 0, None), repeat(DIGIT, 0, None)),
        (repeat(repeat(DIGIT, 1, None), 2, 7), repeat(DIGIT, 2, None)),
        (cat(repeat(DIGIT, 1, 2), DIGIT, repeat(DIGIT, 0, None)), repeat(DIGIT, 2, None)),
        (union(repeat(DIGIT, 1, 2), repeat(DIGIT, 3, 9)), repeat(DIGIT, 1, 9)),
        (union(EMPTY, repeat(DIGIT, 1, 4)), repeat(DIGIT, 0, 4)),
        (both(repeat(DIGIT, 2, 9), length_between(0, 4)), repeat(DIGIT, 2, 4)),
        (other(length_between(2, None)), length_between(0, 1)),
        (cat(repeat(DIGIT, 0, 3), ANY_TEXT), ANY_TEXT),
        (both(union(literal("a"), literal("bb")), HAS_A), literal("a")),
    ],
)
def test_constructors_simplify(made: Regex, expected: Regex) -> None:
    assert made is expected


def test_repetitions_whose_counts_do_not_touch_stay_apart() -> None:
    lengths = union(length_between(1, 2), length_between(4, 5))
    assert [n for n in range(9) if matches(lengths, "é" * n)] == [1, 2, 4, 5]
    assert [n for n in range(9) if matches(other(lengths), "é" * n)] == [0, 3, 6, 7, 8]


@pytest.mark.parametrize("text", ["", "a", "ab", "aab", "b", "ba", "abab", "xyz", "\n", "a\n"])
def test_intersection_and_complement_agree_with_membership(text: str) -> None:
    ends_in_b = cat(ANY_TEXT, literal("b"))
    assert matches(both(HAS_A, ends_in_b), text) == ("a" in text and text.endswith("b"))
    assert matches(both(HAS_A, other(ends_in_b)), text) == ("a" in text and text[-1:] != "b")
    assert matches(other(union(HAS_A, ends_in_b)), text) == (not ("a" in text or text[-1:] == "b"))


def test_lengths_count_code_points() -> None:
    assert matches(length_between(2, 2), "日\U0001f600")
    assert not matches(length_between(2, 2), "\U0001f600")


def test_a_high_count_is_cheap_to_follow() -> None:
    text = "ab" * 50_000
    assert matches(repeat(one_of(characters("ab")), 0, 100_000), text)
    assert not matches(repeat(one_of(characters("ab")), 0, 99_999), text)
    assert not matches(repeat(one_of(characters("ab")), 0, None), text + "c")


def test_nested_repetitions_have_no_catastrophe() -> None:
    ambiguous = repeat(repeat(union(literal("a"), literal("aa")), 0, None), 0, None)
    assert not matches(cat(ambiguous, literal("b")), "a" * 20_000)


def test_an_automaton_that_grows_without_measure_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(regex, "MAX_WORK", 5_000)
    far_back = cat(ANY_TEXT, literal("a"), length_between(60_000, 60_000))
    with pytest.raises(ConstraintTooExpensive, match="steps of an automaton"):
        matches(far_back, "aab" * 30_000)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (NOTHING, True),
        (EMPTY, False),
        (DIGIT, False),
        (both(HAS_A, repeat(one_of(characters("bc")), 0, None)), True),
        (both(HAS_A, cat(ANY_CHAR, literal("a"))), False),
        (both(repeat(one_of(named("L")), 1, None), repeat(one_of(named("Lu")), 1, None)), False),
        (cat(one_of(named("L")), both(HAS_A, repeat(DIGIT, 0, None))), True),
    ],
)
def test_emptiness_is_told(node: Regex, expected: bool) -> None:
    assert is_empty(node) is expected


def test_emptiness_that_depends_on_what_unicode_says_is_left_open() -> None:
    letters_and_digits = both(cat(one_of(named("L")), DIGIT), cat(one_of(named("Nd")), DIGIT))
    assert is_empty(letters_and_digits) is None


def test_emptiness_is_left_open_beyond_the_steps() -> None:
    counted = both(cat(ANY_TEXT, literal("a"), length_between(12, 12)), other(HAS_A))
    assert is_empty(counted, max_steps=3) is None


def test_the_words_of_a_finite_language_are_listed_once() -> None:
    node = cat(union(literal("a"), literal("b")), repeat(literal("x"), 0, 2), literal("!"))
    assert sorted(finite_texts(node, 6) or ()) == ["a!", "ax!", "axx!", "b!", "bx!", "bxx!"]
    assert finite_texts(node, 5) is None
    assert finite_texts(repeat(DIGIT, 0, None), 1000) is None
    assert finite_texts(both(HAS_A, other(literal("a"))), 1000) is None


def test_a_long_sequence_is_no_deep_recursion() -> None:
    node = cat(*(union(literal(str(i)), literal("yy")) for i in range(5000)))
    assert matches(node, "".join(str(i) for i in range(5000)))
    assert not matches(node, "".join(str(i) for i in range(4999)))
