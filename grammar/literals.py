"""Checks of the two constraints that are not schemas: a choice's strings and a regex's text."""

import json
import re

from grammar.errors import UnsupportedConstraint
from grammar.keyword_values import MAX_LITERAL_CHARS

MAX_CHOICES = 4096
MAX_CHOICE_CHARS = 262_144
MAX_REGEX_CHARS = 32_768

LOOKAROUND = re.compile(r"\(\?(?:=|!|<=|<!)")
BACKREFERENCE = re.compile(r"\\(?:[1-9]|k<|k\{|g)|\(\?P=")
# Rust reads `a**` as `(a*)*`; Python and ECMA-262 refuse it, or mean possession by `a*+`.
REPEATED_TWICE = re.compile(r"(?:[*+?]|\{\d+(?:,\d*)?\})(?:[*+]|\{\d)")


def choice_strings(value: str) -> list[str]:
    """The strings of a choice. An empty one is refused: it would allow an answer of no tokens.

    Raises: UnsupportedConstraint, its pointer naming the entry.
    """
    try:
        strings = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise UnsupportedConstraint(f"the choice is not valid JSON: {error}") from error
    if not isinstance(strings, list) or not strings:
        raise UnsupportedConstraint("a choice is a non-empty array of strings")
    if len(strings) > MAX_CHOICES:
        raise UnsupportedConstraint(f"a choice has at most {MAX_CHOICES} strings")
    for index, text in enumerate(strings):
        _check_choice(text, f"/{index}")
    if len(set(strings)) != len(strings):
        raise UnsupportedConstraint("the strings of a choice must differ from each other")
    if sum(map(len, strings)) > MAX_CHOICE_CHARS:
        raise UnsupportedConstraint(f"a choice has at most {MAX_CHOICE_CHARS} characters in all")
    return strings


def escaped_regex(text: str) -> str:
    """A Rust regex that matches this text only."""
    return "".join(
        character if character.isascii() and character.isalnum() else f"\\x{{{ord(character):x}}}"
        for character in text
    )


def checked_regex(pattern: str) -> str:
    """The pattern, if it has nothing that finite automata cannot do.

    Raises: UnsupportedConstraint for look-around, backreferences, and what is no regex at all.
    """
    if not pattern:
        raise UnsupportedConstraint("the regex is empty")
    if len(pattern) > MAX_REGEX_CHARS:
        raise UnsupportedConstraint(f"a regex has at most {MAX_REGEX_CHARS} characters")
    check_encodable(pattern, "the regex")
    for construct, name in unsupported_constructs(pattern):
        raise UnsupportedConstraint(f"{name} is not supported in a regex: {construct!r}")
    return pattern


def unsupported_constructs(pattern: str) -> list[tuple[str, str]]:
    """(text, name) of look-around, backreferences and double repetitions, escapes honoured."""
    found: list[tuple[str, str]] = []
    in_class = False
    position = 0
    while position < len(pattern):
        rest = pattern[position:]
        if not in_class and (match := LOOKAROUND.match(rest)):
            found.append((match.group(), "look-around"))
        elif not in_class and (match := BACKREFERENCE.match(rest)):
            found.append((match.group(), "a backreference"))
        elif not in_class and (match := REPEATED_TWICE.match(rest)):
            found.append((match.group(), "a repetition of a repetition"))
        if rest[0] == "\\":
            position += 2
            continue
        in_class = rest[0] == "[" or (in_class and rest[0] != "]")
        position += 1
    return found


def check_encodable(text: str, what: str, *, pointer: str = "") -> None:
    """Raises: UnsupportedConstraint for a lone surrogate, which no token can spell."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UnsupportedConstraint(f"{what} has a lone surrogate", pointer=pointer) from error


def _check_choice(text: object, pointer: str) -> None:
    if not isinstance(text, str):
        raise UnsupportedConstraint("a choice is an array of strings", pointer=pointer)
    if not text:
        raise UnsupportedConstraint("a string of a choice must not be empty", pointer=pointer)
    if len(text) > MAX_LITERAL_CHARS:
        raise UnsupportedConstraint(
            f"a string of a choice has at most {MAX_LITERAL_CHARS} characters", pointer=pointer
        )
    check_encodable(text, "the string", pointer=pointer)
