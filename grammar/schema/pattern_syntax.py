"""The parser of ECMA-262 patterns: one pass, recursive only in groups, which nest to a limit."""

import re

from grammar.errors import UnsupportedPattern
from grammar.schema.pattern_escapes import any_but_line_ends, character_class, escape
from grammar.schema.pattern_parts import (
    Boundary,
    Choice,
    End,
    Look,
    Part,
    Reading,
    Repeated,
    Sequence,
    Start,
    opposite,
)
from grammar.schema.regex import EMPTY, Regex, cat, literal, one_of, repeat, union

MAX_PATTERN_CHARS = 32_768
MAX_REPEAT_COUNT = 65_536
MAX_GROUP_DEPTH = 50

QUANTIFIER = re.compile(r"[*+?]|\{(?P<low>[0-9]+)(?:(?P<comma>,)(?P<high>[0-9]*))?\}")
GROUP_NAME = re.compile(r"P?<[^\W\d]\w*>")
LOOKS = {"=": (False, False), "!": (False, True), "<=": (True, False), "<!": (True, True)}
UNSUPPORTED_GROUPS = {
    "P=": "a backreference",
    "(": "a conditional",
    ">": "an atomic group",
    "#": "a comment",
    "|": "a branch reset",
    "R": "recursion",
    "&": "recursion",
    "P>": "recursion",
}


def parse_parts(source: str, reading: Reading) -> Part:
    """Raises: UnsupportedPattern for what is malformed or no ECMA-262, with the construct."""
    if len(source) > MAX_PATTERN_CHARS:
        raise UnsupportedPattern(f"a pattern has at most {MAX_PATTERN_CHARS} characters")
    if any("\ud800" <= character <= "\udfff" for character in source):
        raise UnsupportedPattern("the pattern has a lone surrogate")
    parser = _Parser(source)
    parts = parser.alternatives(reading, depth=0)
    if not parser.is_at_end():
        raise UnsupportedPattern("a parenthesis of the pattern is closed but not opened")
    return parts


class _Parser:
    """A place in one pattern."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._position = 0

    def is_at_end(self) -> bool:
        return self._position == len(self._source)

    def alternatives(self, reading: Reading, *, depth: int) -> Part:
        """Up to the end of the group or pattern."""
        if depth > MAX_GROUP_DEPTH:
            raise UnsupportedPattern(f"groups are nested more than {MAX_GROUP_DEPTH} deep")
        branches = [self._sequence(reading, depth)]
        while self._skip("|"):
            branches.append(self._sequence(reading, depth))
        plain = [branch for branch in branches if isinstance(branch, Regex)]
        if len(plain) == len(branches):
            return union(*plain)
        return branches[0] if len(branches) == 1 else Choice(tuple(branches))

    def _sequence(self, reading: Reading, depth: int) -> Part:
        items: list[Part] = []
        plain: list[Regex] = []
        while not self.is_at_end() and self._source[self._position] not in "|)":
            item = self._quantified(self._atom(reading, depth))
            if isinstance(item, Regex):
                plain.append(item)
                continue
            items += [cat(*plain), item] if plain else [item]
            plain = []
        items += [cat(*plain)] if plain or not items else []
        return items[0] if len(items) == 1 else Sequence(tuple(items))

    def _atom(self, reading: Reading, depth: int) -> Part:
        character = self._source[self._position]
        self._position += 1
        match character:
            case "^":
                return Start()
            case "$":
                return End()
            case ".":
                return one_of(any_but_line_ends(reading))
            case "(":
                return self._group(reading, depth)
            case "[":
                members, self._position = character_class(self._source, self._position, reading)
                return one_of(members)
            case "\\":
                return self._escape(reading)
        self._position -= 1
        if QUANTIFIER.match(self._source, self._position):
            raise UnsupportedPattern(f"nothing stands before the quantifier {character!r}")
        if self._source.startswith("{,", self._position):
            raise UnsupportedPattern("write {0,n} instead of {,n} in a pattern")
        self._position += 1
        return literal(character)

    def _escape(self, reading: Reading) -> Part:
        if self._skip("b"):
            return Boundary(is_negated=False, reading=reading)
        if self._skip("B"):
            return Boundary(is_negated=True, reading=reading)
        found, self._position = escape(self._source, self._position, reading)
        return literal(found) if isinstance(found, str) else one_of(found)

    def _group(self, reading: Reading, depth: int) -> Part:
        look = None
        if self._skip("?"):
            look = self._group_kind()
        inner = opposite(reading) if look and look[1] else reading
        item = self.alternatives(inner, depth=depth + 1)
        if not self._skip(")"):
            raise UnsupportedPattern("a group of the pattern is not closed")
        return item if look is None else Look(item, is_behind=look[0], is_negated=look[1])

    def _group_kind(self) -> tuple[bool, bool] | None:
        """(is behind, is negated) of a look-around; None for a plain group."""
        name = GROUP_NAME.match(self._source, self._position)
        if name or self._skip(":"):
            self._position = name.end() if name else self._position
            return None
        for opening, look in LOOKS.items():
            if self._skip(opening):
                return look
        for opening, construct in UNSUPPORTED_GROUPS.items():
            if self._source.startswith(opening, self._position):
                raise UnsupportedPattern(f"{construct} is not supported in a pattern")
        if self._source[self._position : self._position + 1].isdecimal():
            raise UnsupportedPattern("recursion is not supported in a pattern")
        raise UnsupportedPattern("flags within a pattern are not supported")

    def _quantified(self, atom: Part) -> Part:
        found = QUANTIFIER.match(self._source, self._position)
        if found is None:
            return atom
        self._position = found.end()
        self._skip("?")
        if QUANTIFIER.match(self._source, self._position):
            raise UnsupportedPattern("a quantifier after a quantifier is not supported")
        if isinstance(atom, Start | End | Look | Boundary):
            raise UnsupportedPattern("nothing that can be repeated stands before a quantifier")
        low, high = _counts(found)
        if isinstance(atom, Regex):
            return repeat(atom, low, high)
        return Repeated(atom, low, high) if high != 0 else EMPTY

    def _skip(self, text: str) -> bool:
        is_here = self._source.startswith(text, self._position)
        self._position += len(text) if is_here else 0
        return is_here


def _counts(found: re.Match[str]) -> tuple[int, int | None]:
    """Of a quantifier. Python refuses to read very long numbers, hence the look at the length."""
    match found[0]:
        case "*":
            return 0, None
        case "+":
            return 1, None
        case "?":
            return 0, 1
    texts = [text.lstrip("0") or "0" for text in (found["low"], found["high"] or found["low"])]
    if any(len(text) > 5 or int(text) > MAX_REPEAT_COUNT for text in texts):
        raise UnsupportedPattern(f"a quantifier counts to more than {MAX_REPEAT_COUNT}")
    low, high = map(int, texts)
    if high < low:
        raise UnsupportedPattern("a quantifier has its numbers out of order")
    return low, None if found["comma"] and not found["high"] else high
