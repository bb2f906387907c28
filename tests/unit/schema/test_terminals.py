"""Languages as terminals of llguidance and as Rust regexes."""

import json

import pytest

from grammar.schema.characters import characters, inverted, joined, named, ranges
from grammar.schema.regex import (
    ANY_CHAR,
    ANY_TEXT,
    EMPTY,
    NOTHING,
    Regex,
    both,
    cat,
    literal,
    matches,
    one_of,
    other,
    repeat,
    union,
)
from grammar.schema.terminals import (
    json_string,
    plain_text,
    rust_plain_text,
)
from tests.terminal_runs import TerminalRun

DIGIT = one_of(ranges([(0x30, 0x39)]))
SPECIALS = 'a"b\\c/\b\t\n\f\r\x00\x1f\x7fé日\U0001f600'
TEXTS = [
    "", "a", "b", "x9y", "xk9y", "É", "é", "\n", "\x02", '"', "\\", "/", "qaqa", "qbqb", "a/b",
    "12", "١", SPECIALS, "a" * 40,
]  # fmt: skip
LANGUAGES = [
    ANY_TEXT,
    ANY_CHAR,
    EMPTY,
    NOTHING,
    literal(SPECIALS),
    cat(literal('"\\/\n'), ANY_TEXT),
    union(literal("a"), literal("12"), literal("/")),
    repeat(one_of(characters('"\\\n\x02ab/12')), 1, 4),
    one_of(named("Lu")),
    one_of(inverted(joined(named("Lu"), named("Nd")))),
    repeat(one_of(joined(named("L"), characters("/\n"))), 0, None),
    other(literal("a")),
    other(cat(ANY_TEXT, literal("\n"), ANY_TEXT)),
    both(other(literal("a")), other(literal("b"))),
    cat(literal("x"), both(cat(ANY_TEXT, DIGIT), other(literal("k9"))), literal("y")),
    repeat(cat(literal("q"), other(literal("a"))), 2, 2),
    union(literal("a"), both(cat(ANY_TEXT, DIGIT), other(DIGIT))),
    other(cat(literal("q"), other(cat(literal("b"), ANY_TEXT)))),
]


def spelled(text: str) -> str:
    """As json.dumps spells it without escapes that are not needed."""
    return json.dumps(text, ensure_ascii=False)


@pytest.mark.parametrize("node", LANGUAGES)
def test_a_json_terminal_accepts_the_one_spelling_of_what_is_in_the_language(node: Regex) -> None:
    run = TerminalRun(json_string(node))
    for text in TEXTS:
        assert run.accepts(spelled(text)) == matches(node, text), text


@pytest.mark.parametrize("node", LANGUAGES)
def test_a_plain_terminal_accepts_what_is_in_the_language(node: Regex) -> None:
    run = TerminalRun(plain_text(node))
    for text in TEXTS:
        assert run.accepts(text) == matches(node, text), text


@pytest.mark.parametrize(
    "spelling",
    [r'"\/"', r'"\u0061"', r'"\u000a"', r'"\u001F"', '"\x01"', '"\n"', r'"\ud83d\ude00"', r'"\x"'],
)
def test_no_character_has_a_second_spelling(spelling: str) -> None:
    assert not TerminalRun(json_string(ANY_TEXT)).accepts(spelling)


def test_every_control_character_is_spelled_as_json_does() -> None:
    run = TerminalRun(json_string(ANY_CHAR))
    for code in range(0x80):
        assert run.accepts(spelled(chr(code)))


def test_what_has_no_operator_is_one_regex() -> None:
    node = cat(literal("a/"), union(DIGIT, literal("bc")), repeat(DIGIT, 2, None))
    assert json_string(node) == r'/"a\x{2f}(?:[0-9]|bc)[0-9]{2,}"/'
    assert rust_plain_text(union(DIGIT, literal("bc"))) == "[0-9]|bc"


def test_a_language_with_an_operator_is_no_rust_regex() -> None:
    assert rust_plain_text(cat(DIGIT, both(ANY_TEXT, other(DIGIT)))) is None


def test_all_free_strings_are_one_terminal() -> None:
    free = repeat(union(DIGIT, one_of(inverted(ranges([(0x30, 0x39)])))), 0, None)
    assert json_string(free) == json_string(ANY_TEXT)


def test_a_class_up_to_the_last_character_takes_nothing_beside_the_surrogates() -> None:
    last = one_of(ranges([(0x10FFF0, 0x10FFFF)]))
    run = TerminalRun(json_string(last))
    assert run.accepts(spelled("\U0010ffff"))
    assert [run.accepts(spelled(text)) for text in ("\ud7ff", "\ue000")] == [False, False]
