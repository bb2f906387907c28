"""Calls of models that do not keep to their form: JSON objects at the beginning of an answer, in a
code fence, in tags of the prompt, or bare. Rules for grammar.tool_lark.

Only what names one of the tools is such a call: all other JSON remains text.
"""

import json
from collections.abc import Sequence

from grammar.schema import regex
from grammar.schema.punctuation import MAX_SPACES
from grammar.schema.regex import ANY_TEXT, Regex
from grammar.schema.terminals import plain_text
from grammar.tool_calls import ToolCalls, Wrapping

_SPACE = regex.repeat(regex.union(*map(regex.literal, " \t\n\r")), 0, MAX_SPACES)


class WrappedCalls:
    """Rules and terminals, once `start` was called. `arguments` are the rules of each call's."""

    def __init__(self, union: ToolCalls, wrapping: Wrapping, arguments: Sequence[str]) -> None:
        self._names = [call.name for call in union.calls]
        self._wrapping = wrapping
        self._arguments = arguments
        self._max_calls = union.max_calls
        self.lines: list[str] = []

    def start(self) -> str:
        """The rule for the whole of an output."""
        openings = regex.union(*(_spaced(*texts) for texts in self._wrapping.openings))
        closings = regex.union(*(_spaced(*texts) for texts in self._wrapping.closings))
        first = self._calls("wrapped", regex.cat(_SPACE, openings))
        more = ""
        if self._max_calls != 1:
            bound = "*" if self._max_calls is None else f"{{0,{self._max_calls - 1}}}"
            comma = regex.repeat(regex.literal(","), 0, 1)
            more = f" ({self._calls('another', regex.cat(_SPACE, comma, _SPACE))}){bound}"
        closing = self._terminal("UNWRAP", regex.cat(_SPACE, closings))
        return f"{first}{more} {closing}?"

    def other_texts(self) -> Regex:
        """What does not begin as these calls do."""
        openings = regex.union(*(_spaced(*texts) for texts in self._wrapping.openings))
        begin = _begin(*self._names)
        return regex.other(regex.cat(_SPACE, openings, _SPACE, begin, ANY_TEXT))

    def _calls(self, rule: str, before: Regex) -> str:
        """A call, with something before it."""
        to_arguments = self._terminal("TO_ARGUMENTS", _spaced("", ",", '"arguments"', ":", ""))
        end = self._terminal("END_OF_CALL", _spaced("", "}"))
        ways = []
        for index, (name, arguments) in enumerate(zip(self._names, self._arguments, strict=True)):
            begin = regex.cat(before, _SPACE, _begin(name))
            terminal = self._terminal(f"{rule.upper()}_{index}", begin)
            ways.append(f"{terminal} {to_arguments} {arguments} {end}")
        self.lines.append(f"{rule}: {' | '.join(ways)}")
        return rule

    def _terminal(self, name: str, language: Regex) -> str:
        line = f"{name}: {plain_text(language)}"
        if line not in self.lines:
            self.lines.append(line)
        return name


def _begin(*names: str) -> Regex:
    """A call up to the end of its name, where it can no longer be any other text."""
    texts = regex.union(*(regex.literal(json.dumps(name)) for name in names))
    return regex.cat(_spaced("{", '"name"', ":", ""), texts)


def _spaced(*texts: str) -> Regex:
    """The texts with space between them; an empty one at either end lets space stand there."""
    parts: list[Regex] = []
    for index, text in enumerate(texts):
        parts += [*([_SPACE] if index else []), regex.literal(text)]
    return regex.cat(*parts)
