"""A Lark grammar of our own making as one regex of Rust's crate, where it has no recursion."""

import json

from grammar.errors import UnsupportedConstraint
from grammar.lark_tokens import Word, lark_words
from grammar.literals import escaped_regex

START = "start"
MAX_REGEX_CHARS = 262_144
SIGNS = {"(": "(?:", ")": ")", "|": "|", "*": "*", "+": "+", "?": "?", "{": "{", "}": "}", ",": ","}


def lark_to_regex(lark: str) -> str:
    """Raises: UnsupportedConstraint for recursion, and for terminals with & or ~."""
    try:
        words = list(lark_words(lark))
    except UnsupportedConstraint as error:  # & and ~, which clients may not write
        raise UnsupportedConstraint(
            "strings that must not fit a pattern cannot be written in a regex"
        ) from error
    bodies: dict[str, list[Word]] = {}
    line: list[Word] = []
    for word in words:
        if word.kind not in ("newline", "end"):
            line.append(word)
        elif line:
            bodies[line[0].text] = line[2:]
            line = []
    return _Inliner(bodies).regex(START)


class _Inliner:
    """Replaces each name by what its rule says. Remembers what it has replaced."""

    def __init__(self, bodies: dict[str, list[Word]]) -> None:
        self._bodies = bodies
        self._done: dict[str, str] = {}
        self._open: set[str] = set()

    def regex(self, name: str) -> str:
        if name in self._open:
            raise UnsupportedConstraint("what is recursive cannot be written as a regex")
        if name not in self._done:
            self._open.add(name)
            text = "".join(map(self._piece, self._bodies[name]))
            self._open.discard(name)
            if len(text) > MAX_REGEX_CHARS:
                raise UnsupportedConstraint(
                    f"written as a regex it has more than {MAX_REGEX_CHARS} characters"
                )
            self._done[name] = text
        return self._done[name]

    def _piece(self, word: Word) -> str:
        if word.kind == "name":
            return f"(?:{self.regex(word.text)})"
        if word.kind == "string":
            return f"(?:{escaped_regex(json.loads(word.text))})"
        if word.kind == "regex":
            return f"(?:{word.text[1:-1]})"
        if word.kind == "number":
            return word.text
        if word.text not in SIGNS:
            raise UnsupportedConstraint(f"{word.text} cannot be written in a regex")
        return SIGNS[word.text]
