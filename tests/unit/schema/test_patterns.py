"""ECMA-262 patterns as languages of the texts in which they are found."""

import pytest

from grammar.errors import UnsupportedConstraint, UnsupportedPattern
from grammar.schema.pattern_parts import Reading
from grammar.schema.patterns import parse_pattern
from grammar.schema.regex import NOTHING, matches, other
from grammar.schema.terminals import json_string

WORDS = ["", "a", "b", "ab", "ba", "aab", "abc", "a b", "a-b", "b1", "1", "foo", "foobar", "-", "A"]


def found(pattern: str, *, reading: Reading = "narrow", texts: list[str] = WORDS) -> list[str]:
    language = parse_pattern(pattern, reading=reading)
    return [text for text in texts if matches(language, text)]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("", WORDS),
        ("ab", ["ab", "aab", "abc"]),
        ("^ab", ["ab", "abc"]),
        ("b$", ["b", "ab", "aab", "a b", "a-b"]),
        ("^$", [""]),
        ("^a?b?$", ["", "a", "b", "ab"]),
        ("^(a|b)$", ["a", "b"]),
        ("^a|b$", ["a", "b", "ab", "aab", "abc", "a b", "a-b"]),
        ("(^a|b)c", ["abc"]),
        ("^(a|b$)", ["a", "b", "ab", "aab", "abc", "a b", "a-b"]),
        ("a^b", []),
        ("a$b", []),
        ("^(?:a*^)b", ["b", "ba", "b1"]),
        ("^(?:^a|b)+$", ["a", "b", "ab"]),
        ("[a-b]{2}", ["ab", "ba", "aab", "abc", "foobar"]),
        ("^[^ab]", ["1", "foo", "foobar", "-", "A"]),
        ("^[]$", []),
        ("^[^]$", ["a", "b", "1", "-", "A"]),
        ("^[-b]$", ["b", "-"]),
        (r"^[\w-]$", ["a", "b", "1", "-", "A"]),
        (r"^\d", ["1"]),
        (r"\D$", ["a", "b", "ab", "ba", "aab", "abc", "a b", "a-b", "foo", "foobar", "-", "A"]),
        ("^(?<first>a)(?P<second>b)$", ["ab"]),
        ("^a+?b$", ["ab", "aab"]),
        ("^a{1}b{0,1}$", ["a", "ab"]),
        ("^(?=.*b)a.*$", ["ab", "aab", "abc", "a b", "a-b"]),
        ("^(?!foo)[a-z]{3,}$", ["aab", "abc"]),
        ("^(?=.*a)(?=.*b)[a-z]*$", ["ab", "ba", "aab", "abc", "foobar"]),
        ("^a(?!b)", ["a", "aab", "a b", "a-b"]),
        ("foo(?=bar)", ["foobar"]),
        ("foo(?!bar)", ["foo"]),
        ("^.*(?<!b)$", ["", "a", "ba", "abc", "b1", "1", "foo", "foobar", "-", "A"]),
        ("(?<=a)b", ["ab", "aab", "abc"]),
        ("(?<=^a)b$", ["ab"]),
        ("^(?!-)[a-z-]+(?<!-)$", [*WORDS[1:7], "a-b", "foo", "foobar"]),
        (r"\bb\b", ["b", "a b", "a-b"]),
        (r"a\Bb", ["ab", "aab", "abc"]),
        (r"^\B-", ["-"]),
        ("^(?:(?!b).)*$", ["", "a", "1", "foo", "-", "A"]),
        ("^(?:a(?!b)){1,2}", ["a", "aab", "a b", "a-b"]),
    ],
)
def test_a_pattern_is_found_where_ecma_262_finds_it(pattern: str, expected: list[str]) -> None:
    assert found(pattern) == expected
    assert found(pattern, reading="wide") == expected


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"^\x41\u0042\u{43}\cJ$", "ABC\n"),
        (r"^\t\n\v\f\r\0$", "\t\n\v\f\r\0"),
        (r"^\uD83D\uDE00$", "\U0001f600"),
        (r"^\/\-\"\_\@\.\{\<$", '/-"_@.{<'),
        (r"^[\b\]\\]{3}$", "\b]\\"),
        (r"^a{b}{1,x}]}$", "a{b}{1,x}]}"),
        (r"^[a&&b[]$", "["),
        (r"^\p{Lu}\p{Letter}\P{L}\p{gc=Nd}$", "Éé-٣"),
        (r"^[\p{L}\d]+$", "é1"),
        (r"^[^\p{L}]$", "1"),
        ("^日{2}$", "日日"),
    ],
)
def test_escapes_and_literals(pattern: str, text: str) -> None:
    assert matches(parse_pattern(pattern, reading="narrow"), text)
    assert not matches(parse_pattern(pattern, reading="narrow"), f"{text} ")


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"^\d$", "٣"),
        (r"^\w$", "é"),
        (r"^\s$", "\ufeff"),
        (r"^[^\D]$", "٣"),
        (r"^\W$", "é"),
        (r"^[^\w]$", "é"),
        ("^.$", "\u2028"),
        ("^.$", "\r"),
        (r"^(?!\W)", "é"),
        (r"^a\b", "aé"),
        (r"^a\B", "aé"),
        (r"^é\b", "é"),
        (r"^é\B", "é"),
        (r"^é\b-$", "é-"),
    ],
)
def test_where_readings_differ_a_text_is_in_the_wide_language_only(pattern: str, text: str) -> None:
    assert not matches(parse_pattern(pattern, reading="narrow"), text)
    assert matches(parse_pattern(pattern, reading="wide"), text)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        (r"(a)\1", "backreference"),
        (r"(?<x>a)\k<x>", "backreference"),
        ("(?P=x)", "backreference"),
        ("(?R)", "recursion"),
        ("(?1)", "recursion"),
        ("(?(1)a|b)", "conditional"),
        ("(?i)a", "flags"),
        ("(?>a)", "atomic"),
        ("a**", "quantifier after"),
        ("a*+", "quantifier after"),
        ("a{2}{3}", "quantifier after"),
        ("*a", "before the quantifier"),
        ("^*", "before a quantifier"),
        ("a{3,2}", "out of order"),
        ("a{65537}", "more than 65536"),
        ("a{999999999999999999999}", "more than 65536"),
        ("a{,3}", "{0,n}"),
        ("(a", "not closed"),
        ("a)", "not opened"),
        ("[a", "not closed"),
        ("[b-a]", "low to high"),
        (r"[a-\d]", "low to high"),
        ("a\\", "ends in a backslash"),
        (r"\uD83D", "surrogate"),
        ("\ud83d", "surrogate"),
        (r"\u{110000}", "Unicode"),
        (r"\x4", "not complete"),
        (r"\p{Script=Greek}", "Script=Greek"),
        (r"\p{Cn}", "Cn"),
        (r"\A", "no meaning"),
        (r"\01", "backreference"),
        ("(?:a(?<=b))*", "look-behind|repetition"),
        ("(?:a$)*b", "repetition"),
        ("a(?=b)c(?<=d)e", "look-behind"),
        ("(" * 51 + ")" * 51, "nested"),
        ("a" * 32_769, "32768"),
        ("a(?<!b)" * 9 + "$", "look-behinds"),
        ("^" + "(a|(?=b).)" * 2000, "nest or multiply"),
    ],
)
def test_what_is_malformed_or_not_regular_is_refused_by_name(pattern: str, reason: str) -> None:
    with pytest.raises(UnsupportedPattern, match=reason) as caught:
        parse_pattern(pattern, reading="narrow")
    assert isinstance(caught.value, UnsupportedConstraint)
    assert caught.value.keyword == "pattern"


@pytest.mark.parametrize(
    "pattern",
    [
        "(a*)*b",
        "(a|a)*b",
        "(a+)+$",
        "^(([a-z])+.)+[A-Z]([a-z])+$",
        "(" * 50 + "a" + ")" * 50,
        "(?:" * 49 + "a" + ")*b?" * 49,
        "(((a{1,60000}){1,60000}){1,60000}){1,60000}",
        "(a|)" * 1000,
        "(?=.*a)" * 1000,
        "[" + r"\p{L}\P{Lu}\p{Nd}\P{Sc}" * 500 + "]",
    ],
)
def test_no_pattern_is_a_catastrophe(pattern: str) -> None:
    language = parse_pattern(pattern, reading="narrow")
    assert isinstance(matches(language, "a" * 2000), bool)
    assert len(json_string(other(language))) < 20_000


def test_an_impossible_branch_leaves_the_others() -> None:
    assert parse_pattern("a^b|^c$", reading="narrow") is parse_pattern("^c$", reading="narrow")
    assert parse_pattern("a^b", reading="narrow") is NOTHING
