"""What the parser of patterns makes: plain languages, and around them what looks at its context.

grammar.schema.pattern_syntax makes these, grammar.schema.patterns resolves them.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from grammar.schema.regex import Regex

# Validators differ on class escapes. "narrow": what matches under every reading of a pattern,
# "wide": what matches under any.
Reading = Literal["narrow", "wide"]


@dataclass(frozen=True, slots=True)
class Sequence:
    items: tuple["Part", ...]


@dataclass(frozen=True, slots=True)
class Choice:
    items: tuple["Part", ...]


@dataclass(frozen=True, slots=True)
class Repeated:
    """`item` is never a plain language."""

    item: "Part"
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Start:
    """Here is the start of the text."""


@dataclass(frozen=True, slots=True)
class End:
    """Here is the end of the text."""


@dataclass(frozen=True, slots=True)
class Look:
    """From here on (or up to here, if behind) the item matches, or does not."""

    item: "Part"
    is_behind: bool
    is_negated: bool


@dataclass(frozen=True, slots=True)
class Boundary:
    """Of the characters beside this place one is of a word, or (negated) both or none."""

    is_negated: bool
    reading: Reading


Part: TypeAlias = Regex | Sequence | Choice | Repeated | Start | End | Look | Boundary


def opposite(reading: Reading) -> Reading:
    """The reading for what is going to be negated."""
    return "wide" if reading == "narrow" else "narrow"
