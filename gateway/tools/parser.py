"""From the text of an answer to its content and its calls, whatever pieces the text comes in.

Owned by one choice of an answer. The grammar makes calls exact; this takes any text all the same.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto

from gateway.tools.arguments import Arguments, new_arguments
from gateway.tools.calls import ToolFragment
from gateway.tools.dialect import Dialect
from gateway.tools.layouts import DialectLayout, Found, Layout, Verdict, WrappedLayout


@dataclass(frozen=True, slots=True)
class ParsedText:
    """What is settled: content, and pieces of calls that come after it. `cut` is content too, at
    the very end: what there is of a block that has no call yet."""

    content: str = ""
    fragments: tuple[ToolFragment, ...] = ()
    cut: str = ""


class _State(Enum):
    START = auto()  # of an answer, which may be calls that are wrapped
    TEXT = auto()  # up to a trigger
    BEGIN = auto()  # a call's text up to its arguments
    ARGUMENTS = auto()
    END = auto()  # of a call
    LINK = auto()  # to another call, or the closing
    REST = auto()  # text in which nothing is looked for


class ToolTextParser:
    """`num_complete_calls` counts calls whose arguments and end have come. `is_truncated` says
    that the text so far ends within a block, which therefore needs more.

    `names` are those of the tools: nothing else is a call. With `at_start` calls are looked for
    at the very beginning only, and as the dialect writes them. With `by_token` no text is a
    trigger: `trigger()` says where one is.
    """

    def __init__(
        self,
        dialect: Dialect,
        names: Iterable[str],
        *,
        at_start: bool = False,
        by_token: bool = False,
        new_call_id: Callable[[], str] | None = None,
    ) -> None:
        names = tuple(names)
        self._dialect = dialect
        self._new_call_id = new_call_id or dialect.new_call_id
        self._by_token = by_token
        # Without a trigger a text that is held back may be no call.
        self._begins_calls = at_start or dialect.trigger is not None
        self._layout: Layout = DialectLayout(dialect, names)
        self._wrapped: WrappedLayout | None = None
        if dialect.wrapping is not None and not at_start:
            self._wrapped = WrappedLayout(dialect.wrapping, names)
        self._state = self._first_state(at_start=at_start)
        self._held = ""
        self._gap = ""
        self._link_text = ""
        self._arguments: Arguments | None = None
        self._num_calls = 0
        self._is_in_block = False
        self._is_blank = True
        self._content: list[str] = []
        self._fragments: list[ToolFragment] = []
        self.num_complete_calls = 0

    def _first_state(self, *, at_start: bool) -> _State:
        if self._wrapped is not None:
            return _State.START
        is_leading = at_start or self._dialect.trigger is None
        return _State.BEGIN if is_leading and not self._by_token else _State.TEXT

    @property
    def is_truncated(self) -> bool:
        if self._state is _State.LINK:
            return not self._layout.may_end_with(self._held)
        return self._is_in_block

    def feed(self, text: str) -> ParsedText:
        """What the text settles, together with what was held back before."""
        self._held += text
        while self._step():
            pass
        return self._take()

    def trigger(self) -> ParsedText:
        """A control token that stands for the trigger. Within a block it is text like any other."""
        trigger = self._dialect.trigger or ""
        if self._state in (_State.START, _State.TEXT) and self._by_token:
            self._begin_block()
        return self.feed(trigger)

    def finish(self) -> ParsedText:
        """All that was held back. A block that was cut before its first call is content."""
        if self._arguments is not None:
            self._add_arguments(self._arguments.finish())
            self._arguments = None
        rest = ""
        if not self._num_calls or self._state in (_State.TEXT, _State.REST):
            rest = self._gap + self._held
            self._gap = self._held = ""
        if self._state is _State.BEGIN and self._begins_calls:
            return replace(self._take(), cut=rest)
        self._add_content(rest)
        return self._take()

    def _step(self) -> bool:
        """Does what the held text tells; whether there may be more to do."""
        match self._state:
            case _State.START:
                return self._start()
            case _State.TEXT:
                return self._text()
            case _State.BEGIN:
                return self._begin()
            case _State.ARGUMENTS:
                return self._argue()
            case _State.END:
                return self._end()
            case _State.LINK:
                return self._link()
        self._add_content(self._held)
        self._held = ""
        return False

    def _text(self) -> bool:
        trigger = "" if self._by_token else self._dialect.trigger or ""
        if trigger and trigger in self._held:
            before, _, after = self._held.partition(trigger)
            self._held = before
            self._begin_block()
            self._held = trigger + after
            return True
        num_kept = max(_overlap(self._held, trigger), _overlap(self._held, self._dialect.gap))
        # What is kept may be the gap and the beginning of a trigger after it.
        num_kept = max(num_kept, _overlap(self._held, self._dialect.gap + trigger))
        settled = len(self._held) - num_kept
        if self._is_blank and not self._held[:settled].strip():
            return False
        self._add_content(self._held[:settled])
        self._held = self._held[settled:]
        return False

    def _begin_block(self) -> None:
        """The held text comes before a block. The gap goes if that has a call, as the template
        writes it again; and so does a text of nothing but space, as comes after reasoning."""
        is_space = self._is_blank and not self._held.strip()
        before = "" if is_space else self._held.removesuffix(self._dialect.gap)
        self._gap = self._held[len(before) :]
        self._add_content(before)
        self._held = ""
        self._state = _State.BEGIN

    def _start(self) -> bool:
        assert self._wrapped is not None
        step = self._wrapped.begin(self._held, is_first=True)
        if isinstance(step, Found):
            self._layout = self._wrapped
            return self._begun(step)
        if step is Verdict.WAIT:
            return False
        self._state = _State.TEXT
        return True

    def _begin(self) -> bool:
        step = self._layout.begin(self._held, is_first=not self._num_calls)
        if isinstance(step, Found):
            return self._begun(step)
        return step is Verdict.NO and self._no_call()

    def _begun(self, call: Found) -> bool:
        self._held, self._gap = call.rest, ""
        self._arguments = new_arguments(self._dialect.style)
        self._fragments.append(
            ToolFragment(self._num_calls, call_id=self._new_call_id(), name=call.name)
        )
        self._num_calls += 1
        self._is_in_block = True
        self._state = _State.ARGUMENTS
        return True

    def _no_call(self) -> bool:
        """The held text only looked like a call. Further on there may be one."""
        self._add_content(self._gap)
        self._gap = ""
        trigger = self._dialect.trigger
        goes_on = trigger is not None and not self._by_token and not self._num_calls
        if goes_on and trigger and self._held.startswith(trigger):
            self._add_content(trigger)
            self._held = self._held[len(trigger) :]
            self._state = _State.TEXT
        else:
            self._end_block(self._link_text + self._held)
        return True

    def _end_block(self, rest: str) -> None:
        self._held = rest
        self._state = _State.REST
        self._is_in_block = False

    def _argue(self) -> bool:
        assert self._arguments is not None
        if not self._held:
            return False
        passed_on, self._held = self._arguments.feed(self._held)
        self._add_arguments(passed_on)
        if not self._arguments.is_whole:
            return False
        self._arguments = None
        self._state = _State.END
        return True

    def _end(self) -> bool:
        step = self._layout.end(self._held)
        if step is Verdict.WAIT:
            return False
        if isinstance(step, Found):
            self._held = step.rest
            self._state = _State.LINK
        else:
            self._end_block(self._held)
        self.num_complete_calls += 1
        return True

    def _link(self) -> bool:
        step = self._layout.link(self._held)
        if step is Verdict.WAIT:
            return False
        if isinstance(step, Found) and step.is_more:
            self._link_text = self._held[: len(self._held) - len(step.rest)]
            self._held = step.rest
            self._state = _State.BEGIN
        else:
            self._end_block(step.rest if isinstance(step, Found) else self._held)
        return True

    def _add_content(self, text: str) -> None:
        if text:
            self._content.append(text)
            self._is_blank = False

    def _add_arguments(self, text: str) -> None:
        if text:
            self._fragments.append(ToolFragment(self._num_calls - 1, arguments=text))

    def _take(self) -> ParsedText:
        taken = ParsedText("".join(self._content), tuple(self._fragments))
        self._content, self._fragments = [], []
        return taken


def _overlap(text: str, following: str) -> int:
    """How many of the text's last characters `following` begins with."""
    for length in range(min(len(text), len(following)), 0, -1):
        if text.endswith(following[:length]):
            return length
    return 0
