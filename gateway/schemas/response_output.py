"""What one answer consists of, in the order in which it was generated: runs of reasoning and text,
and calls. Streams and whole answers are both made of these, so that they are the same."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from gateway.errors import ServerError
from gateway.generation import FinishReason, LogprobEntry, TextDelta
from gateway.schemas.chat_response import chat_logprobs
from gateway.schemas.response_items import (
    CallItem,
    Item,
    ItemStatus,
    MessageItem,
    OutputText,
    ReasoningItem,
    ReasoningText,
    output_id,
)
from gateway.tools.calls import ToolFragment

RunKind = Literal["reasoning", "message", "function_call"]


@dataclass(eq=False, slots=True)
class Run:
    """One item while it grows. `call_id` and `name` are of calls only."""

    kind: RunKind
    index: int
    id: str
    call_id: str = ""
    name: str = ""
    texts: list[str] = field(default_factory=list)
    logprobs: list[LogprobEntry] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def add(self, text: str, logprobs: tuple[LogprobEntry, ...] = ()) -> None:
        """Of the last run only."""
        self.texts.append(text)
        self.logprobs.extend(logprobs)

    def part(self) -> OutputText | ReasoningText:
        """The one part that a message or what was thought consists of."""
        if self.kind == "reasoning":
            return ReasoningText(self.text)
        return OutputText(self.text, logprobs=chat_logprobs(self.logprobs).content)

    def begun(self) -> Item:
        """The item as it is announced: without what is in it."""
        if self.kind == "function_call":
            return CallItem(self.id, "in_progress", self.call_id, self.name, "")
        if self.kind == "reasoning":
            return ReasoningItem(self.id, "in_progress")
        return MessageItem(self.id, "in_progress", "assistant", [])

    def item(self, status: ItemStatus) -> Item:
        """The item as it has ended."""
        if self.kind == "function_call":
            return CallItem(self.id, status, self.call_id, self.name, self.text)
        part = self.part()
        if isinstance(part, ReasoningText):
            return ReasoningItem(self.id, status, content=[part])
        return MessageItem(self.id, status, "assistant", [part])


@dataclass(frozen=True, slots=True)
class Piece:
    """What a delta adds to one run. The first piece of a call is empty."""

    run: Run
    text: str
    logprobs: tuple[LogprobEntry, ...] = ()


class AnswerOutput:
    """The runs of an answer; the last one is the one that grows."""

    def __init__(self, response_id: str) -> None:
        self._response_id = response_id
        self._num_calls = 0
        self._unplaced: tuple[LogprobEntry, ...] = ()
        self.runs: list[Run] = []

    def feed(self, delta: TextDelta) -> Iterator[Piece]:
        """What the delta adds, in order. To be iterated to its end.

        Raises: ServerError for a piece of a call that has ended.
        """
        if delta.reasoning:
            yield self._add("reasoning", delta.reasoning)
        yield from self._feed_text(delta)
        for fragment in delta.tool_calls:
            yield self._feed_call(fragment)

    def finish(self, reason: FinishReason) -> Iterator[Piece]:
        """An answer that is complete says something, be it an empty text: clients take the last
        message for the answer."""
        if reason != "length" and all(run.kind == "reasoning" for run in self.runs):
            yield self._add("message", "")

    def items(self, *, is_cut: bool) -> list[Item]:
        """All items; of an answer that was cut the last one is incomplete."""
        cut = self.runs[-1] if is_cut and self.runs else None
        return [run.item("incomplete" if run is cut else "completed") for run in self.runs]

    def _feed_text(self, delta: TextDelta) -> Iterator[Piece]:
        # A token may have no text of its own: it must not begin a message among calls.
        logprobs = self._unplaced + delta.logprobs
        is_open = bool(self.runs) and self.runs[-1].kind == "message"
        if delta.text or (logprobs and is_open):
            self._unplaced = ()
            yield self._add("message", delta.text, logprobs)
        else:
            self._unplaced = logprobs

    def _feed_call(self, fragment: ToolFragment) -> Piece:
        if fragment.call_id is not None:
            run = self._begin("function_call")
            run.call_id, run.name = fragment.call_id, fragment.name or ""
            self._num_calls += 1
        if not self.runs or self.runs[-1].kind != "function_call":
            raise ServerError("A call went on after its end.")
        if fragment.index != self._num_calls - 1:
            raise ServerError("A call went on after the next one began.")
        return self._add("function_call", fragment.arguments)

    def _add(self, kind: RunKind, text: str, logprobs: tuple[LogprobEntry, ...] = ()) -> Piece:
        run = self.runs[-1] if self.runs and self.runs[-1].kind == kind else self._begin(kind)
        run.add(text, logprobs)
        return Piece(run, text, logprobs)

    def _begin(self, kind: RunKind) -> Run:
        index = len(self.runs)
        self.runs.append(Run(kind, index, output_id(kind, self._response_id, index)))
        return self.runs[-1]
