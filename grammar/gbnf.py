"""Reads GBNF, llama.cpp's notation of grammars, and its near relatives that other servers read.

A rule ends where the next one begins ("name ::="), so that it may go over lines as it likes.
"""

import re
from dataclasses import dataclass

from grammar import gbnf_nodes as nodes
from grammar.errors import UnsupportedConstraint
from grammar.gbnf_nodes import Chars, Name, Node, Text
from grammar.schema import characters
from grammar.schema.characters import Range

ROOT = "root"
MAX_CHARS = 262_144
MAX_RULES = 10_000
MAX_DEPTH = 32
MAX_REPETITIONS = 65_536

BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
RULE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
DEFINITION = re.compile(rf"({RULE_NAME.pattern})(?:[ \t\r\n]+|#[^\n]*)*::=")
COUNTS = re.compile(r"\{[ \t]*([0-9]*)[ \t]*(?:(,)[ \t]*([0-9]*)[ \t]*)?\}")
CODE = re.compile(r"x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|u\{[0-9A-Fa-f]{1,6}\}")
ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"} | {c: c for c in "\\\"'[]-^/"}
ANY = Chars(characters.EVERY)
REPETITIONS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


@dataclass(frozen=True, slots=True)
class Grammar:
    """`rules` in the order of the text; `root` is among them, and so is every name they use."""

    rules: dict[str, Node]


def parse_gbnf(text: str) -> Grammar:
    """Raises: UnsupportedConstraint, with line and column, for what cannot be read."""
    if len(text) > MAX_CHARS:
        raise UnsupportedConstraint(f"a grammar has at most {MAX_CHARS} characters")
    return _Reader(text).grammar()


class _Reader:
    """One pass over one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._depth = 0
        self._uses: dict[str, int] = {}

    def grammar(self) -> Grammar:
        rules: dict[str, Node] = {}
        self._skip_blank()
        while self._position < len(self._text):
            start = self._position
            definition = DEFINITION.match(self._text, start)
            if definition is None:
                raise self._error("a rule was expected: name ::= ...")
            name = definition.group(1)
            if name in rules:
                raise self._error(f"the rule {name!r} is defined twice")
            if len(rules) == MAX_RULES:
                raise self._error(f"a grammar has at most {MAX_RULES} rules")
            self._position = definition.end()
            rules[name] = self._choice()
        if ROOT not in rules:
            raise UnsupportedConstraint("the grammar has no rule 'root'")
        for name, position in self._uses.items():
            if name not in rules:
                raise self._error(f"the rule {name!r} is not defined", at=position)
        return Grammar(rules)

    def _choice(self) -> Node:
        alternatives = [self._sequence()]
        while self._take("|"):
            alternatives.append(self._sequence())
        return nodes.choice(alternatives)

    def _sequence(self) -> Node:
        items: list[Node] = []
        self._skip_blank()
        while not self._is_at_end_of_sequence():
            item = self._item()
            self._skip_blank()
            while (counts := self._repetition()) is not None:
                item = nodes.repeat(item, *counts)
                self._skip_blank()
            items.append(item)
        return nodes.sequence(items)

    def _is_at_end_of_sequence(self) -> bool:
        if self._peek() in ("", "|"):
            return True
        if self._peek() == ")":
            if self._depth == 0:
                raise self._error("a ')' without its '('")
            return True
        return DEFINITION.match(self._text, self._position) is not None

    def _item(self) -> Node:
        character = self._peek()
        if character in ('"', "'"):
            return self._string(character)
        if character == "[":
            return self._class()
        if character == "(":
            return self._group()
        if self._take("."):
            return ANY
        name = RULE_NAME.match(self._text, self._position)
        if name is None:
            raise self._error(_misplaced(character))
        self._uses.setdefault(name.group(), self._position)
        self._position = name.end()
        return Name(name.group())

    def _group(self) -> Node:
        start = self._position
        self._position += 1
        if self._peek() == "=":
            raise self._error("look-ahead is not supported")
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error(f"groups are nested at most {MAX_DEPTH} deep")
        inner = self._choice()
        if not self._take(")"):
            raise self._error("a group has no ')'", at=start)
        self._depth -= 1
        return inner

    def _repetition(self) -> tuple[int, int | None] | None:
        sign = self._peek()
        if sign in REPETITIONS and sign:
            self._position += 1
            return REPETITIONS[sign]
        if sign != "{":
            return None
        counts = COUNTS.match(self._text, self._position)
        if counts is None or counts.group(1, 2, 3) in (("", None, None), ("", ",", "")):
            raise self._error("a repetition is {m}, {m,} or {m,n}")
        low = self._count(counts.group(1) or "0")
        high = self._count(counts.group(3)) if counts.group(3) else None
        high = low if counts.group(2) is None else high
        if high is not None and high < low:
            raise self._error(f"the repetition {counts.group()} ends before it begins")
        self._position = counts.end()
        return low, high

    def _count(self, digits: str) -> int:
        if len(digits) > 6 or int(digits) > MAX_REPETITIONS:
            raise self._error(f"a repetition has at most {MAX_REPETITIONS} times")
        return int(digits)

    def _string(self, quote: str) -> Node:
        start = self._position
        self._position += 1
        text: list[str] = []
        while not self._take(quote):
            if self._peek() in ("", "\n"):
                raise self._error("a string has no end", at=start)
            text.append(self._character())
        return Text("".join(text))

    def _class(self) -> Node:
        start = self._position
        self._position += 1
        is_negated = self._take("^")
        pairs: list[Range] = []
        while not self._take("]"):
            if self._peek() == "":
                raise self._error("a character class has no ']'", at=start)
            pairs.append(self._range())
        if not pairs:
            raise self._error("a character class is empty", at=start)
        members = characters.ranges(pairs)
        members = characters.inverted_ranges(members) if is_negated else members
        if not members.bounds:
            raise self._error("a character class allows no character", at=start)
        return Chars(members)

    def _range(self) -> Range:
        start = self._position
        low = ord(self._character())
        if not self._text.startswith("-", self._position) or self._peek(1) in ("]", ""):
            return low, low
        self._position += 1
        high = ord(self._character())
        if high < low:
            raise self._error("a range of characters ends before it begins", at=start)
        return low, high

    def _character(self) -> str:
        """One character of a string or a class, an escape resolved."""
        character = self._peek()
        if character == "\\":
            return self._escape()
        if 0xD800 <= ord(character) <= 0xDFFF:
            raise self._error("a lone surrogate")
        self._position += 1
        return character

    def _escape(self) -> str:
        after = self._position + 1
        if (code := CODE.match(self._text, after)) is not None:
            value = int(code.group()[1:].strip("{}"), 16)
            if value > characters.LAST_CODE or 0xD800 <= value <= 0xDFFF:
                raise self._error(f"\\{code.group()} is no character")
            self._position = code.end()
            return chr(value)
        escaped = self._text[after : after + 1]
        if escaped not in ESCAPES:
            raise self._error(f"unknown escape \\{escaped}")
        self._position = after + 1
        return ESCAPES[escaped]

    def _peek(self, offset: int = 0) -> str:
        return self._text[self._position + offset : self._position + offset + 1]

    def _take(self, text: str) -> bool:
        is_there = self._text.startswith(text, self._position)
        self._position += len(text) if is_there else 0
        return is_there

    def _skip_blank(self) -> None:
        blank = BLANK.match(self._text, self._position)
        self._position = blank.end() if blank else self._position

    def _error(self, message: str, *, at: int | None = None) -> UnsupportedConstraint:
        position = self._position if at is None else at
        line = self._text.count("\n", 0, position) + 1
        column = position - self._text.rfind("\n", 0, position)
        return UnsupportedConstraint(f"line {line}, column {column}: {message}")


def _misplaced(character: str) -> str:
    if character in ("<", "!"):
        return "tokens are not supported, only text"
    if character in REPETITIONS or character == "{":
        return f"{character!r} has nothing to repeat"
    return f"{character!r} is not expected here"
