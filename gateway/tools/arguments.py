"""Finds the end of a call's arguments while they come in, in both styles that models write."""

import ast
import json
import re
from collections.abc import Iterator
from typing import NoReturn, Protocol

from gateway.tools.dialect import json_text
from grammar.tool_calls import CallStyle

_OPENING, _CLOSING = "([{", ")]}"
_KEYWORD = re.compile(r"\s*([^\s=,()\[\]{}\"']+)\s*=\s*")


class Arguments(Protocol):
    """One call's. `is_whole` says that all of them were taken."""

    is_whole: bool

    def feed(self, text: str) -> tuple[str, str]:
        """JSON to be passed on, and what comes after the arguments."""

    def finish(self) -> str:
        """JSON of what was held back, where the text was cut."""


def new_arguments(style: CallStyle) -> Arguments:
    return JsonArguments() if style == "json" else KeywordArguments()


class JsonArguments:
    """An object, passed on as it comes, to the brace that closes it."""

    def __init__(self) -> None:
        self.is_whole = False
        self._nesting = _Nesting('"')

    def feed(self, text: str) -> tuple[str, str]:
        for index, character in enumerate(text):
            self._nesting.step(character)
            if self._nesting.depth == 0:
                self.is_whole = True
                return text[: index + 1], text[index + 1 :]
        return text, ""

    def finish(self) -> str:
        return ""


class KeywordArguments:
    """`name=value, ...` up to the closing parenthesis, which is left; one piece of JSON then."""

    def __init__(self) -> None:
        self.is_whole = False
        self._text = ""
        self._nesting = _Nesting("\"'")

    def feed(self, text: str) -> tuple[str, str]:
        for index, character in enumerate(text):
            self._nesting.step(character)
            if self._nesting.depth < 0:
                self.is_whole = True
                return json_text(_pairs(self._text + text[:index])) + "}", text[index:]
        self._text += text
        return "", ""

    def finish(self) -> str:
        return json_text(_pairs(self._text))


class _Nesting:
    """How many brackets are open, those in strings not counted."""

    def __init__(self, quotes: str) -> None:
        self.depth = 0
        self.is_quoted = False
        self._quotes = quotes
        self._quote: str | None = None
        self._is_escaped = False

    def step(self, character: str) -> None:
        if self._is_escaped:
            self._is_escaped = False
        elif self._quote is not None:
            self._is_escaped = character == "\\"
            if character == self._quote:
                self._quote = None
        elif character in self._quotes:
            self._quote = character
        elif character in _OPENING:
            self.depth += 1
        elif character in _CLOSING:
            self.depth -= 1

    @property
    def is_between(self) -> bool:
        """Whether the last character was outside of brackets and strings."""
        return self.depth == 0 and self._quote is None


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    """Names and the JSON of their values. What has no name is given a number for one."""
    for number, part in enumerate(_parts(text)):
        keyword = _KEYWORD.match(part)
        if keyword is None:
            yield str(number), _json_value(part)
        else:
            yield keyword[1], _json_value(part[keyword.end() :])


def _parts(text: str) -> Iterator[str]:
    """What stands between commas that are in no brackets and no strings."""
    nesting, start = _Nesting("\"'"), 0
    for index, character in enumerate(text):
        nesting.step(character)
        if character == "," and nesting.is_between:
            yield text[start:index]
            start = index + 1
    if text[start:].strip():
        yield text[start:]


def _json_value(text: str) -> str:
    """JSON stays as it is; a literal of Python is written as JSON, and anything else as a text."""
    text = text.strip()
    try:
        json.loads(text, parse_constant=_refuse_constant)
        return text
    except (ValueError, RecursionError):
        pass
    try:
        return json.dumps(ast.literal_eval(text), ensure_ascii=False, allow_nan=False)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return json.dumps(text, ensure_ascii=False)


def _refuse_constant(name: str) -> NoReturn:
    """NaN and infinity, which Python reads in JSON and nobody else does."""
    raise ValueError(name)
