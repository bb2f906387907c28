"""From the items of a Responses conversation to the messages of a chat, and shorter forms of it."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gateway.cache_wish import Breakpoint
from gateway.errors import InvalidRequest
from gateway.generation import ChatPrompt
from gateway.schemas.response_items import (
    CallItem,
    CallOutputItem,
    InputText,
    Item,
    MessageItem,
    MessagePart,
    ReasoningItem,
    Refusal,
)

Message = dict[str, Any]
# More of them are made into messages in a worker: about 10 ms of the loop.
MAX_INLINE_ITEMS = 2_000


@dataclass(frozen=True, slots=True)
class Conversation:
    """All items, oldest first, and what the template is given beside them. `breakpoints` are those
    of items, by their ids, whose messages are found here."""

    items: tuple[Item, ...]
    instructions: str | None = None
    tools: tuple[dict[str, Any], ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    adds_special: bool = False
    breakpoints: Mapping[str, tuple[Breakpoint, ...]] = field(default_factory=dict)
    tool_breakpoints: tuple[Breakpoint, ...] = ()

    def prompt(self, num_dropped: int = 0) -> ChatPrompt:
        """Without about that many of the oldest items (shortened()).

        Raises: InvalidRequest where nobody said anything.
        """
        items = shortened(self.items, num_dropped)
        turns = [*_turns(items, instructions=self.instructions)]
        messages = tuple(message for message, _ in turns)
        if not messages:
            raise InvalidRequest(
                "Invalid value for 'input': no message is in it.", code="empty_array", param="input"
            )
        return ChatPrompt(
            messages=messages,
            tools=self.tools,
            options=self.options,
            adds_special=self.adds_special,
            breakpoints=(*self.tool_breakpoints, *self._placed(turns)),
        )

    def _placed(self, turns: Sequence["_Said"]) -> Iterator[Breakpoint]:
        """The breakpoints of what is still there, in the messages that it became."""
        for index, (message, items) in enumerate(turns if self.breakpoints else ()):
            for point in (one for item in items for one in self.breakpoints.get(item.id, ())):
                # A single part has become the message's text.
                part = point.part if isinstance(message.get("content"), list) else None
                yield replace(point, message=index, part=part)

    async def prompt_aside(self, num_dropped: int = 0) -> ChatPrompt:
        """The same, not in the way of the event loop."""
        if len(self.items) <= MAX_INLINE_ITEMS:
            return self.prompt(num_dropped)
        return await asyncio.to_thread(self.prompt, num_dropped)


# A message and the items that it was made of.
_Said = tuple[Message, Sequence[Item]]


def _turns(items: Iterable[Item], *, instructions: str | None) -> Iterator[_Said]:
    """What a model said before it was asked again is one message: its thoughts, text and calls."""
    if instructions is not None:
        yield {"role": "system", "content": instructions}, ()
    turn = _Turn()
    for item in items:
        if turn.takes(item):
            continue
        yield from turn.said()
        turn = _Turn()
        if isinstance(item, CallOutputItem):
            yield _result(item), (item,)
        elif isinstance(item, MessageItem) and item.role != "assistant":
            yield {"role": item.role, "content": _content(item.content)}, (item,)
        else:
            turn.takes(item)
    yield from turn.said()


def max_dropped(items: Sequence[Item]) -> int:
    """How many of the oldest items may be left out: not the last one, nor the calls that the last
    results belong to; system messages do not count."""
    droppable = _droppable(items)
    calls = {
        item.call_id: place
        for place, index in enumerate(droppable)
        if isinstance(item := items[index], CallItem)
    }
    limit = max(len(droppable) - 1, 0)
    for item in reversed(items):
        if not isinstance(item, CallOutputItem):
            break
        limit = min(limit, calls.get(item.call_id, limit))
    return limit


def shortened(items: Sequence[Item], num_dropped: int) -> tuple[Item, ...]:
    """Without the oldest items; where the user has the word later, it begins there, as it does for
    templates that demand it. System messages stay. A result never stays without its call."""
    if num_dropped == 0:
        return tuple(items)
    droppable = _droppable(items)
    ends = (place for place in range(num_dropped, max_dropped(items) + 1))
    end = next((place for place in ends if _is_user(items[droppable[place]])), num_dropped)
    gone = set(droppable[:end])
    kept = [item for index, item in enumerate(items) if index not in gone]
    lost = {item.call_id for i in gone if isinstance(item := items[i], CallItem)}
    lost -= {item.call_id for item in kept if isinstance(item, CallItem)}
    return tuple(
        item for item in kept if not (isinstance(item, CallOutputItem) and item.call_id in lost)
    )


class _Turn:
    """What the model said in one go."""

    def __init__(self) -> None:
        self._thoughts: list[str] = []
        self._content: str | list[Message] | None = None
        self._calls: list[Message] = []
        self._items: list[Item] = []

    def takes(self, item: Item) -> bool:
        """Adds the item, unless something else has to come first."""
        is_taken = self._add(item)
        if is_taken:
            self._items.append(item)
        return is_taken

    def _add(self, item: Item) -> bool:
        if isinstance(item, CallItem):
            self._calls.append(_call(item))
            return True
        if self._calls or self._content is not None:
            return False
        if isinstance(item, ReasoningItem):
            self._thoughts += [part.text for part in item.content]
            return True
        if isinstance(item, MessageItem) and item.role == "assistant":
            self._content = _content(item.content)
            return True
        return False

    def said(self) -> Iterator[_Said]:
        """Nothing for thoughts that led to nothing."""
        if self._content is None and not self._calls:
            return
        message: Message = {"role": "assistant"}
        if self._content is not None:
            message["content"] = self._content
        if self._thoughts:
            message["reasoning_content"] = "".join(self._thoughts)
        if self._calls:
            message["tool_calls"] = self._calls
        yield message, self._items


def _call(item: CallItem) -> Message:
    function = {"name": item.name, "arguments": item.arguments}
    return {"id": item.call_id, "type": "function", "function": function}


def _result(item: CallOutputItem) -> Message:
    output = item.output if isinstance(item.output, str) else _content(item.output)
    return {"role": "tool", "tool_call_id": item.call_id, "content": output}


def _content(parts: Sequence[MessagePart | InputText]) -> str | list[Message]:
    """One text as such; several remain parts, for templates that take them."""
    if not parts:
        return ""
    if len(parts) == 1 and not isinstance(parts[0], Refusal):
        return parts[0].text
    return [
        {"type": "refusal", "refusal": part.refusal}
        if isinstance(part, Refusal)
        else {"type": "text", "text": part.text}
        for part in parts
    ]


def _droppable(items: Sequence[Item]) -> list[int]:
    """The places of all items but system messages."""
    return [
        index
        for index, item in enumerate(items)
        if not (isinstance(item, MessageItem) and item.role in ("system", "developer"))
    ]


def _is_user(item: Item) -> bool:
    return isinstance(item, MessageItem) and item.role == "user"
