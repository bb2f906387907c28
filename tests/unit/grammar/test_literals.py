"""Choices and regexes before any engine sees them."""

import json

import pytest

from grammar.errors import UnsupportedConstraint
from grammar.literals import MAX_CHOICES, checked_regex, choice_strings, unsupported_constructs


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        ("", ""),
        ("{}", ""),
        ("[]", ""),
        ('["a","a"]', ""),
        ('["a",""]', "/1"),
        ('["a",null]', "/1"),
        ('["\\ud800"]', "/0"),
        ("[" * 100_000, ""),
        (json.dumps([str(number) for number in range(MAX_CHOICES + 1)]), ""),
        (json.dumps(["a", "x" * 20_000]), "/1"),
        (json.dumps([f"{number:010000}" for number in range(30)]), ""),
    ],
)
def test_what_is_no_choice_is_refused_with_its_place(value: str, pointer: str) -> None:
    with pytest.raises(UnsupportedConstraint) as caught:
        choice_strings(value)
    assert caught.value.pointer == pointer


def test_a_choice_keeps_its_strings_as_they_are() -> None:
    assert choice_strings('["b\\n","é","a"]') == ["b\n", "é", "a"]


@pytest.mark.parametrize(
    "pattern", ["", "a" * 40_000, "\ud800", "(?=a)", "(?<!a)b", r"(a)\1", r"\k<n>"]
)
def test_what_no_automaton_can_match_is_refused(pattern: str) -> None:
    with pytest.raises(UnsupportedConstraint):
        checked_regex(pattern)


@pytest.mark.parametrize(
    "pattern", [r"[(?=a)]", r"\(?=a", r"\\(?:1)", r"[\1]", r"(?<name>a)", r"\\1"]
)
def test_what_only_looks_like_it_is_not(pattern: str) -> None:
    assert unsupported_constructs(pattern) == []
