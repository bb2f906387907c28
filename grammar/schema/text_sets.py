"""Sets of strings that are honest about patterns: validators read `\\d` and its like differently.

A `TextSet` has two languages: what belongs to it by every reading (`narrow`), and what may belong
to it by some (`wide`). The complement swaps them, so that nothing doubtful is ever let through.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from grammar.schema.regex import (
    ANY_TEXT,
    NOTHING,
    Regex,
    both,
    is_empty,
    literal,
    matches,
    other,
    union,
)

# Where a set is empty and that is not found, the grammar has a dead end, at which an answer ends in
# an error. Formats against lengths need more than 1,000.
MAX_PROOF_STEPS = 4_000


@dataclass(frozen=True, slots=True)
class TextSet:
    """`narrow` is part of `wide`; where they are one object, all readings agree."""

    narrow: Regex
    wide: Regex

    ALL: ClassVar["TextSet"]
    NONE: ClassVar["TextSet"]

    @staticmethod
    def exact(regex: Regex) -> "TextSet":
        return TextSet(regex, regex)

    @staticmethod
    def words(texts: tuple[str, ...]) -> "TextSet":
        return TextSet.exact(union(*map(literal, texts)))

    def intersect(self, with_: "TextSet") -> "TextSet":
        narrow = both(self.narrow, with_.narrow)
        if self.wide is self.narrow and with_.wide is with_.narrow:
            return TextSet(narrow, narrow)
        return TextSet(narrow, both(self.wide, with_.wide))

    def unite(self, with_: "TextSet") -> "TextSet":
        narrow = union(self.narrow, with_.narrow)
        if self.wide is self.narrow and with_.wide is with_.narrow:
            return TextSet(narrow, narrow)
        return TextSet(narrow, union(self.wide, with_.wide))

    def complement(self) -> "TextSet":
        narrow = other(self.wide)
        return TextSet(narrow, narrow if self.wide is self.narrow else other(self.narrow))

    def surely_has(self, text: str) -> bool:
        return matches(self.narrow, text)

    def may_have(self, text: str) -> bool:
        return matches(self.wide, text)

    @property
    def is_surely_empty(self) -> bool:
        """No text can be generated from it. False where that cannot be told cheaply."""
        return self.narrow is NOTHING or (not self.narrow.is_plain and _is_empty(self.narrow))


@lru_cache(maxsize=4096)
def _is_empty(regex: Regex) -> bool:
    return is_empty(regex, max_steps=MAX_PROOF_STEPS) is True


TextSet.ALL = TextSet.exact(ANY_TEXT)
TextSet.NONE = TextSet.exact(NOTHING)
