"""From a conversation's tokens to its messages and back: which message a token falls in, and where
a message ends. What a template rewrote beyond recognition has no position; nothing is guessed.

Made by PromptEncoder; asked by explanations of the cache and by breakpoints.
"""

import re
import secrets
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal, Protocol

from gateway.errors import InvalidRequest
from gateway.tokenizer import Tokenizer

Message = dict[str, Any]
PlaceKind = Literal["content", "message", "preamble", "generation_prompt"]


class Renderer(Protocol):
    """The template of one prompt, with its tools and options."""

    def __call__(self, messages: Sequence[Message], *, is_prefix: bool) -> str:
        """The text of messages; with `is_prefix` nothing comes after them, as if more of them did.

        Raises: InvalidRequest.
        """


@dataclass(frozen=True, slots=True)
class MessagePlace:
    """Where a token is. `content`: in what message `index` says, `offset` characters into its
    content, or into `part` of it. `message`: in what the template writes for that message around
    its content, its role and calls for example. `preamble` is what comes before the first content,
    `generation_prompt` what comes after all messages; both belong to none."""

    kind: PlaceKind
    index: int | None = None
    role: str | None = None
    part: int | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class _Span:
    """A content in the text: [start, end), without the space around it, of which `lead`
    characters come first. `start` None: it does not stand there as it was written."""

    message: int
    part: int | None
    start: int | None
    end: int
    lead: int


class PromptMap:
    """The positions of one prompt's messages. Counts characters of the rendered text inside."""

    def __init__(
        self,
        *,
        text: str,
        messages: Sequence[Message],
        spans: Sequence[_Span],
        offsets: Sequence[tuple[int, int]],
        render: Renderer,
    ) -> None:
        """`offsets` has the characters of each token of the prompt."""
        self._text = text
        self._messages = messages
        self._spans = spans
        self._offsets = offsets
        # A character of several tokens ends with each of them.
        self._ends = list(accumulate((end for _, end in offsets), max))
        self._render = render
        self._message_ends: dict[int, int | None] = {}

    def message_at(self, token_index: int) -> MessagePlace | None:
        """Where the token is; None where that cannot be told. A token that reaches into a content
        is in it."""
        if not 0 <= token_index < len(self._offsets):
            return None
        first, last = self._offsets[token_index]
        for span in self._spans:
            if span.start is not None and first < span.end and last > span.start:
                offset = span.lead + max(first - span.start, 0)
                role = str(self._messages[span.message]["role"])
                return MessagePlace("content", span.message, role, span.part, offset)
        return self._around(first)

    def token_end(self, message_index: int, part_index: int | None = None) -> int | None:
        """How many tokens end before or with the content, or with that part of it; with the whole
        message where it has calls. None where the end cannot be told, or is in what was cut off."""
        if not 0 <= message_index < len(self._messages):
            return None
        end = self._content_end(message_index, part_index)
        if end is None or not self._ends:
            return None
        num_tokens = bisect_right(self._ends, end)
        return num_tokens or None

    def _content_end(self, message_index: int, part_index: int | None) -> int | None:
        if part_index is None and self._messages[message_index].get("tool_calls"):
            return self._message_end(message_index)
        ends = [
            span.end
            for span in self._spans
            if span.message == message_index and part_index in (None, span.part)
        ]
        if part_index is None:
            return ends[-1] if ends else self._message_end(message_index)
        return ends[0] if ends else None

    def _around(self, place: int) -> MessagePlace | None:
        """Outside of all contents that were found as they are."""
        before = next((span for span in reversed(self._spans) if span.end <= place), None)
        after = next((span for span in self._spans if span.end > place), None)
        if after is not None and after.message == 0 and before is None:
            return MessagePlace("preamble") if after.start is not None else None
        last = len(self._messages) if after is None else after.message
        if before is not None and before.message > last:  # they were put into another order
            return None
        index = self._owner_of(place, 0 if before is None else before.message, last)
        if index is None:
            return None
        is_behind_all = index == len(self._messages)
        return MessagePlace("generation_prompt") if is_behind_all else self._of_message(index)

    def _owner_of(self, place: int, first: int, last: int) -> int | None:
        """Which message from `first` on the place belongs to, `last` if to none before that one;
        None where it cannot be told. A template is run some log2 times, however many they are."""
        while first < last:
            middle = (first + last) // 2
            end = self._message_end(middle)
            if end is None:
                return None
            if place < end:
                last = middle
            else:
                first = middle + 1
        return first

    def _of_message(self, index: int) -> MessagePlace:
        return MessagePlace("message", index, str(self._messages[index]["role"]))

    def _message_end(self, index: int) -> int | None:
        """Where all that the template writes for the message ends: the messages up to it are the
        beginning of the whole, or it is not known."""
        if index not in self._message_ends:
            self._message_ends[index] = self._find_end(index)
        return self._message_ends[index]

    def _find_end(self, index: int) -> int | None:
        try:
            beginning = self._render(self._messages[: index + 1], is_prefix=True)
        except InvalidRequest:  # a conversation that may not end there
            return None
        return len(beginning) if self._text.startswith(beginning) else None


def map_prompt(
    tokenizer: Tokenizer,
    text: str,
    token_ids: Sequence[int],
    messages: Sequence[Message],
    *,
    render: Renderer,
    adds_special: bool = False,
) -> PromptMap:
    """The positions in `text`, which is what `render` makes of the messages, and in its tokens, of
    which `token_ids` may be the last ones only. Renders once more."""
    all_ids, offsets = tokenizer.encode_with_offsets(
        text, add_special=adds_special, param="messages"
    )
    start = len(all_ids) - len(token_ids)
    is_end = start >= 0 and all_ids[start:] == list(token_ids)
    return PromptMap(
        text=text,
        messages=messages,
        spans=_find_spans(text, messages, render) if is_end else (),
        offsets=offsets[start:] if is_end else (),
        render=render,
    )


def _find_spans(text: str, messages: Sequence[Message], render: Renderer) -> Sequence[_Span]:
    """Marks behind the contents show where they end. A template that looks at their ends may look
    at no beginnings: then marks stand there."""
    for is_behind in (True, False):
        marked = _MarkedContents(messages, is_behind=is_behind)
        try:
            shown = render(marked.messages, is_prefix=False)
        except InvalidRequest:
            continue
        spans = marked.spans(shown, text)
        if spans is not None:
            return spans
    return ()


class _MarkedContents:
    """Messages with a mark behind (or before) each content, inside the space around it, which
    templates may strip. Contents of nothing but space have none: templates ask whether there is
    any content."""

    def __init__(self, messages: Sequence[Message], *, is_behind: bool) -> None:
        self._is_behind = is_behind
        # Nothing that a client writes looks like one of these.
        self._nonce = secrets.token_hex(8)
        self._marked: list[tuple[int, int | None, str]] = []
        self.messages = [self._message(index, message) for index, message in enumerate(messages)]

    def spans(self, shown: str, text: str) -> list[_Span] | None:
        """In the order of the text; None where the marks changed more than they stand for."""
        pieces = re.split(f"mark_{self._nonce}_([0-9]+)_", shown)
        if "".join(pieces[::2]) != text:
            return None
        numbers = [int(number) for number in pieces[1::2]]
        times = Counter(numbers)
        places = accumulate(map(len, pieces[:-1:2]))
        return [
            self._span(number, place, text)
            for number, place in zip(numbers, places, strict=True)
            if times[number] == 1
        ]

    def _span(self, number: int, place: int, text: str) -> _Span:
        message, part, content = self._marked[number]
        core = content.strip()
        lead = len(content) - len(content.lstrip())
        if not self._is_behind:
            return _Span(message, part, place, place + len(core), lead)
        start = place - len(core)
        is_whole = text.startswith(core, start) if start >= 0 else False
        return _Span(message, part, start if is_whole else None, place, lead)

    def _message(self, index: int, message: Message) -> Message:
        content = message.get("content")
        if isinstance(content, str):
            return {**message, "content": self._mark(content, index, None)}
        if not isinstance(content, list):
            return message
        parts = [self._part(part, index, number) for number, part in enumerate(content)]
        return {**message, "content": parts}

    def _part(self, part: Any, index: int, number: int) -> Any:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in ("text", "refusal") or not isinstance(part.get(kind), str):
            return part
        return {**part, kind: self._mark(part[kind], index, number)}

    def _mark(self, content: str, index: int, part: int | None) -> str:
        core = content.strip()
        if not core:
            return content
        mark = f"mark_{self._nonce}_{len(self._marked)}_"
        self._marked.append((index, part, content))
        before, _, after = content.partition(core)
        return f"{before}{core}{mark}{after}" if self._is_behind else f"{before}{mark}{core}{after}"
