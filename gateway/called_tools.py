"""The text of one choice as content and tool calls, and what its calls were in the end.

Owned by ChoiceText. What is no call passes the search for stop strings; calls do not.
"""

from gateway.detokenizer import Detokenizer
from gateway.tools.calls import CollectedCall, collect
from gateway.tools.constraint import ToolPlan
from gateway.tools.parser import ParsedText


class CalledTools:
    """`calls` are all that were begun; `are_complete` says that there are some, and no more is
    missing of them. `num_chars` is how long the text is so far, settled or not."""

    def __init__(self, plan: ToolPlan, detokenizer: Detokenizer) -> None:
        self._plan = plan
        self._parser = plan.parser()
        self._detokenizer = detokenizer
        self.calls: list[CollectedCall] = []
        self.num_chars = 0

    @property
    def are_complete(self) -> bool:
        num_complete = self._parser.num_complete_calls
        return 0 < num_complete == len(self.calls) and not self._parser.is_truncated

    def feed(self, token_id: int) -> ParsedText:
        """What the token settles."""
        marker = self._plan.marker_texts.get(token_id)
        if marker is None:
            return self._read(self._detokenizer.feed(token_id))
        # A marker's bytes are text of their own: what came before it is over.
        before = self._read(self._detokenizer.flush())
        if token_id != self._plan.trigger_id:
            return _joined(before, self._read(marker))
        self.num_chars += len(marker)
        return _joined(before, self._noted(self._parser.trigger()))

    def finish(self) -> ParsedText:
        """The end of the answer: all that was held back."""
        last = self._read(self._detokenizer.flush())
        return _joined(last, self._noted(self._parser.finish()))

    def _read(self, text: str) -> ParsedText:
        self.num_chars += len(text)
        return self._noted(self._parser.feed(text))

    def _noted(self, parsed: ParsedText) -> ParsedText:
        collect(self.calls, parsed.fragments)
        return parsed


def _joined(first: ParsedText, second: ParsedText) -> ParsedText:
    return ParsedText(
        first.content + second.content,
        first.fragments + second.fragments,
        first.cut + second.cut,
    )
