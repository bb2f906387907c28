"""Which patterns have an automaton that a mask cannot afford."""

import pytest

from grammar.schema.patterns import parse_pattern
from grammar.schema.regex import Regex, repeat
from grammar.schema.unwieldy import MIN_BOUND, is_unwieldy


def language(pattern: str) -> Regex:
    return parse_pattern(pattern, reading="narrow")


@pytest.mark.parametrize(
    "pattern",
    [
        r"^(.{1,63}\.){1,127}$",
        r"^([a-z.]{1,63}\.)+$",
        r"^(?:x|(?:[a-y]{0,40}a)*)$",
        r"^z?(([a-z]{1,40}a)*|0)$",
    ],
)
def test_bounds_within_a_repetition_over_the_same_characters_are_unwieldy(pattern: str) -> None:
    assert is_unwieldy(language(pattern))


@pytest.mark.parametrize(
    "pattern",
    [
        r"^.{1,2000}$",
        r"^[a-z]{1,63}\.[a-z]{1,63}$",
        r"^([a-z]{1,63}\.)+$",  # the dot ends a round, so that there is one way to split
        r"^(.{1,3}\.){1,127}$",
        r"^([a-z]+\.)*$",
        "^a?b|c*$",
        "^(?:[a-z]{1,40}a){1}$",
    ],
)
def test_other_patterns_are_not(pattern: str) -> None:
    assert not is_unwieldy(language(pattern))


def test_small_bounds_are_written_out() -> None:
    def nested(bound: int) -> bool:
        return is_unwieldy(language(rf"^(.{{1,{bound}}}\.){{1,200}}$"))

    assert (nested(MIN_BOUND - 1), nested(100)) == (False, True)


def test_once_is_no_repetition() -> None:
    inner = language(r"^(?:[a-z]{1,40}a)$")
    assert not is_unwieldy(repeat(inner, 0, 1))
    assert is_unwieldy(repeat(inner, 0, None))
