"""The regular languages of grammar.schema against Python's re, exact fractions and json."""

import json
import re
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grammar.errors import UnsupportedPattern
from grammar.schema.characters import Ranges, characters, common, contains, inverted, joined, named
from grammar.schema.numbers import Bound, number_regex
from grammar.schema.patterns import parse_pattern
from grammar.schema.regex import Regex, both, is_empty, matches, other, union
from grammar.schema.terminals import json_string, plain_text, rust_plain_text
from tests.terminal_runs import TerminalRun

ATOMS = st.sampled_from(
    ["a", "b", "c", "ab", "[ab]", "[^a]", ".", r"\w", r"\W", r"\d", r"[\w-]", r"\s", "-", "1", ""]
)
QUANTIFIERS = st.sampled_from(["*", "+", "?", "{1,2}", "{2}", "{0,3}", "{2,}", "*?", "+?"])


def _compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}|{pair[1]})"),
        st.tuples(inner, QUANTIFIERS).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
    )


PLAIN_PATTERNS = st.recursive(ATOMS, _compound, max_leaves=8)
ASSERTING = st.one_of(
    PLAIN_PATTERNS,
    PLAIN_PATTERNS.map("^{}".format),
    PLAIN_PATTERNS.map("{}$".format),
    st.sampled_from([r"\b", r"\B"]),
    PLAIN_PATTERNS.map("(?={})".format),
    PLAIN_PATTERNS.map("(?!{})".format),
    st.sampled_from(["(?<=a)", "(?<!b)", "(?<![ab])"]),
)
PATTERNS = st.recursive(ASSERTING, _compound, max_leaves=5)
TEXTS = st.text("abc1- ", max_size=6)
NUMBERS = st.builds(
    lambda sign, whole, places: sign + str(whole) + places,
    st.sampled_from(["", "-"]),
    st.one_of(st.integers(0, 30), st.integers(0, 10**6)),
    st.one_of(st.just(""), st.text("01589", min_size=1, max_size=4).map(".{}".format)),
)
BOUNDS = st.none() | st.builds(
    lambda text, is_exclusive: Bound(Fraction(text), is_exclusive), NUMBERS, st.booleans()
)


def _language(pattern: str) -> Regex | None:
    try:
        return parse_pattern(pattern, reading="narrow")
    except UnsupportedPattern:
        return None


@settings(derandomize=True, max_examples=400, deadline=None)
@given(PATTERNS, st.lists(TEXTS, min_size=8, max_size=8))
def test_a_pattern_is_found_where_python_finds_it(pattern: str, texts: list[str]) -> None:
    # `$` means the end only, and Python's \B is never in an empty text.
    expected = re.compile(pattern.replace("$", r"\Z"), re.ASCII)
    language = _language(pattern)
    for text in filter(None, texts):
        if language is not None:
            assert matches(language, text) == bool(expected.search(text)), text


@settings(derandomize=True, max_examples=60, deadline=None)
@given(PATTERNS, st.lists(st.text('ab1-"\\\n\x01é', max_size=5), min_size=6, max_size=6))
def test_a_terminal_accepts_exactly_the_json_spelling(pattern: str, texts: list[str]) -> None:
    language = _language(pattern)
    if language is None:
        return
    as_json, as_text = TerminalRun(json_string(language)), TerminalRun(plain_text(language))
    for text in texts:
        spelling = json.dumps(text, ensure_ascii=False)
        assert json.loads(spelling) == text
        assert as_json.accepts(spelling) == matches(language, text)
        assert as_text.accepts(text) == matches(language, text)


@settings(derandomize=True, max_examples=150, deadline=None)
@given(PLAIN_PATTERNS, PLAIN_PATTERNS, st.lists(TEXTS, min_size=5, max_size=5))
def test_the_algebra_is_that_of_sets(left: str, right: str, texts: list[str]) -> None:
    first, second = _language(f"^(?:{left})$"), _language(f"^(?:{right})$")
    assert first is not None
    assert second is not None
    for text in texts:
        in_first, in_second = matches(first, text), matches(second, text)
        assert matches(union(first, second), text) == (in_first or in_second)
        assert matches(both(first, second), text) == (in_first and in_second)
        assert matches(both(first, other(second)), text) == (in_first and not in_second)
        if in_first and in_second:
            assert is_empty(both(first, second)) is not True


@settings(derandomize=True, max_examples=150, deadline=None)
@given(PLAIN_PATTERNS, st.lists(TEXTS, min_size=5, max_size=5))
def test_emptiness_of_what_a_language_has_not(pattern: str, texts: list[str]) -> None:
    language = _language(f"^(?:{pattern})$")
    assert language is not None
    assert is_empty(both(language, other(language))) is True
    if any(not matches(language, text) for text in texts):
        assert is_empty(other(language)) is not True


@settings(derandomize=True, max_examples=150, deadline=None)
@given(PLAIN_PATTERNS, TEXTS)
def test_the_regex_without_operators_means_the_same_to_python(pattern: str, text: str) -> None:
    language = _language(f"^(?:{pattern})$")
    assert language is not None
    regex = rust_plain_text(language)
    assert regex is not None
    if r"\P" in regex:  # Python has no named classes
        return
    spelled = re.sub(r"\\x\{([0-9a-f]+)\}", lambda m: f"\\U{int(m[1], 16):08x}", regex)
    assert bool(re.fullmatch(spelled, text)) == matches(language, text)


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.text("aé1٣-_", max_size=4), st.sampled_from(["L", "Nd", "P"]), st.characters())
def test_sets_of_characters_are_sets(text: str, name: str, character: str) -> None:
    plain, category, code = characters(text), named(name), ord(character)
    if 0xD800 <= code <= 0xDFFF:
        return
    in_plain, in_category = character in text, contains(category, code)
    assert contains(joined(plain, category), code) == (in_plain or in_category)
    assert contains(common(inverted(plain), category), code) == (in_category and not in_plain)
    assert isinstance(plain, Ranges)


@pytest.mark.parametrize("integer", [None, True, False])
@settings(derandomize=True, max_examples=300, deadline=None)
@given(low=BOUNDS, high=BOUNDS, texts=st.lists(NUMBERS, min_size=8, max_size=8))
def test_bounds_are_those_of_exact_fractions(
    integer: bool | None, low: Bound | None, high: Bound | None, texts: list[str]
) -> None:
    pattern = number_regex(low, high, integer=integer)
    near = [_decimal(bound.value) for bound in (low, high) if bound is not None]
    for text in texts + near:
        is_in = pattern is not None and re.fullmatch(pattern, text) is not None
        assert is_in == _is_allowed(text, low, high, integer), (text, pattern)


def _decimal(value: Fraction) -> str:
    return f"{float(value):.4f}"


def _is_allowed(text: str, low: Bound | None, high: Bound | None, integer: bool | None) -> bool:
    value = Fraction(text)
    if low is not None and (value < low.value or (low.is_exclusive and value == low.value)):
        return False
    if high is not None and (value > high.value or (high.is_exclusive and value == high.value)):
        return False
    if integer is None:
        return True
    return "." not in text and text != "-0" if integer else value.denominator != 1
