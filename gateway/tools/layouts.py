"""How the text of calls is recognised while it comes in: as a dialect writes it, or wrapped in
something else. Each step looks at the text since the last one.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from gateway.tools.dialect import Dialect
from grammar.tool_calls import Wrapping

_SPACE = " \t\r\n"


class Verdict(Enum):
    """What cannot be found: not yet, or not here."""

    WAIT = auto()
    NO = auto()


@dataclass(frozen=True, slots=True)
class Found:
    """Something ends before `rest`. `name` is the function's of a call that begins; `is_more` says
    that another call follows."""

    rest: str
    name: str = ""
    is_more: bool = False


Step = Found | Verdict


class Layout(Protocol):
    """One block of calls."""

    def begin(self, text: str, *, is_first: bool) -> Step:
        """A call up to its arguments."""

    def end(self, text: str) -> Step:
        """What follows the arguments."""

    def link(self, text: str) -> Step:
        """What follows a call: another one, or the end of the block."""

    def may_end_with(self, text: str) -> bool:
        """Whether the block is complete with this text after a call."""


class DialectLayout:
    """As the dialect's forms say, to the letter."""

    def __init__(self, dialect: Dialect, names: Iterable[str]) -> None:
        self._dialect = dialect
        self._begins = [
            (form.begin(name), name, form.end) for name in names for form in dialect.forms
        ]
        self._end = ""

    def begin(self, text: str, *, is_first: bool) -> Step:
        """See Layout.begin."""
        opening = self._dialect.opening if is_first else ""
        verdict = Verdict.NO
        for begin, name, end in self._begins:
            if (opening + begin).startswith(text):
                verdict = Verdict.WAIT
            elif text.startswith(opening + begin):
                rest = text[len(opening + begin) :]
                if self._dialect.style == "json" and rest[0] != "{":
                    return Verdict.NO
                self._end = end
                return Found(rest, name)
        return verdict

    def end(self, text: str) -> Step:
        """See Layout.end."""
        return _after(text, self._end)

    def link(self, text: str) -> Step:
        """See Layout.link."""
        separator, closing = self._dialect.separator, self._dialect.closing
        if text.startswith(separator):
            return Found(text[len(separator) :], is_more=True)
        return Verdict.WAIT if separator.startswith(text) else _after(text, closing)

    def may_end_with(self, text: str) -> bool:
        """See Layout.may_end_with."""
        return text == self._dialect.closing


class WrappedLayout:
    """JSON objects with name and arguments, spaced freely."""

    def __init__(self, wrapping: Wrapping, names: Collection[str]) -> None:
        self._names = names
        self._openings = wrapping.openings
        # The longest first, as one may be the beginning of another.
        self._closings = sorted(wrapping.closings, key=len, reverse=True)

    def begin(self, text: str, *, is_first: bool) -> Step:
        """See Layout.begin."""
        steps = [
            self._begin_after(text, opening)
            for opening in (self._openings if is_first else ([], [","]))
        ]
        return _best(steps)

    def end(self, text: str) -> Step:
        """See Layout.end."""
        return _after_spaced(text, ["}"])

    def link(self, text: str) -> Step:
        """See Layout.link."""
        following = text.lstrip(_SPACE)
        if following[:1] in ("{", ","):
            return Found(text, is_more=True)
        return _best([_after_spaced(text, closing) for closing in self._closings])

    def may_end_with(self, _text: str) -> bool:
        """See Layout.may_end_with."""
        return True

    def _begin_after(self, text: str, opening: Sequence[str]) -> Step:
        to_name = _after_spaced(text, [*opening, "{", '"name"', ":", '"'])
        if not isinstance(to_name, Found):
            return to_name
        name, quote, rest = to_name.rest.partition('"')
        if not quote:
            may_be = any(known.startswith(name) for known in self._names)
            return Verdict.WAIT if may_be else Verdict.NO
        if name not in self._names:
            return Verdict.NO
        arguments = _after_spaced(rest, [",", '"arguments"', ":", "{"])
        return Found("{" + arguments.rest, name) if isinstance(arguments, Found) else arguments


def _best(steps: Sequence[Step]) -> Step:
    """The first that is not out of the question."""
    return next((step for step in steps if step is not Verdict.NO), Verdict.NO)


def _after(text: str, expected: str) -> Step:
    if text.startswith(expected):
        return Found(text[len(expected) :])
    return Verdict.WAIT if expected.startswith(text) else Verdict.NO


def _after_spaced(text: str, expected: Sequence[str]) -> Step:
    """After the expected texts, with any space before each."""
    for part in expected:
        step = _after(text.lstrip(_SPACE), part)
        if not isinstance(step, Found):
            return step
        text = step.rest
    return Found(text)
