"""The words of llguidance's Lark dialect, each with its place."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from grammar.errors import UnsupportedConstraint

Kind = Literal["name", "string", "regex", "number", "newline", "keyword", "json", "sign", "end"]
WORDS = re.compile(
    r"""(?P<blank>[ \t]+|(?:\#|//)[^\n]*)
      | (?P<newline>(?:\r?\n)+)
      | (?P<string>"(?:\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4})|[^"\\\x00-\x1f\x7f])*"i?)
      | (?P<regex>/(?:\\.|[^/\\])+/[imslux]*)
      | (?P<token><[^<>\s]+>)
      | (?P<name>[!?_]*[A-Za-z][A-Za-z0-9_-]*)
      | (?P<number>[+-]?[0-9]+)
      | (?P<keyword>%[A-Za-z]+)
      | (?P<sign>->|\.\.|::|[:.,|()\[\]{}~*+?=@])""",
    re.VERBOSE,
)
FOLLOWED_BY_JSON = frozenset({"%json", "%regex", "%llguidance"})


@dataclass(frozen=True, slots=True)
class Word:
    """`kind` "json" is the value after a keyword that takes one. `start` and `end` are offsets."""

    kind: Kind
    text: str
    start: int
    end: int
    line: int

    def error(self, message: str) -> UnsupportedConstraint:
        return UnsupportedConstraint(f"line {self.line}: {message}")


def lark_words(text: str) -> Iterator[Word]:
    """Without blanks and comments; the last one is of kind "end".

    Raises: UnsupportedConstraint for what no grammar may have: tokens, and text that is no word.
    """
    position, line = 0, 1
    while position < len(text):
        found = WORDS.match(text, position)
        kind = found.lastgroup if found else None
        word = Word(kind or "sign", found.group() if found else "", position, 0, line)  # type: ignore[arg-type]
        if found is None:
            raise word.error(f"{text[position]!r} is not expected here")
        if kind == "token":
            raise word.error(f"tokens are not supported, only text: {found.group()}")
        if kind != "blank":
            yield Word(word.kind, word.text, position, found.end(), line)
        line += found.group().count("\n")
        position = found.end()
        if found.group() in FOLLOWED_BY_JSON:
            value = _json(text, position, line)
            yield value
            line += value.text.count("\n")
            position = value.end
    yield Word("end", "", position, position, line)


def _json(text: str, start: int, line: int) -> Word:
    blank = re.compile(r"[ \t\r\n]*").match(text, start)
    begin = blank.end() if blank else start
    try:
        _, end = json.JSONDecoder().raw_decode(text, begin)
    except (ValueError, RecursionError) as error:
        raise UnsupportedConstraint(f"line {line}: no JSON: {error}") from error
    return Word("json", text[start:end], start, end, line)
