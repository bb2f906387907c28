"""The items of `input` in a Responses request: every kind that this server takes, text only.

Clients send back what they were given and much that they made up; what an item says twice or that
says nothing here (annotations, a phase, encrypted reasoning) is left out.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from gateway.cache_wish import Breakpoint
from gateway.schemas.caching import Controlled, ControlledPart, breakpoints_of
from gateway.schemas.fields import LIST_BRANCH, TEXT_BRANCH, refusal, text_or_list
from gateway.schemas.messages import Arguments
from gateway.schemas.response_items import (
    CallItem,
    CallOutputItem,
    InputText,
    Item,
    ItemStatus,
    MessageItem,
    MessagePart,
    OutputText,
    ReasoningItem,
    ReasoningText,
    Refusal,
    Role,
    input_id,
)

MAX_ID_CHARS = 256
_KINDS = ("message", "function_call", "function_call_output", "reasoning", "item_reference")
_TEXT_KEYS = {
    "input_text": "text",
    "output_text": "text",
    "text": "text",
    "refusal": "refusal",
    "reasoning_text": "text",
    "summary_text": "text",
}
_MEDIA = frozenset({"input_image", "input_file", "input_audio", "image_url", "file"})
ItemId = Annotated[str, Field(min_length=1, max_length=MAX_ID_CHARS)]


class Part(ControlledPart):
    """A piece of text, whichever side wrote it."""

    type: str
    text: str = ""
    refusal: str = ""

    @model_validator(mode="before")
    @classmethod
    def _is_text(cls, value: Any) -> Any:
        kind = value.get("type") if isinstance(value, dict) else None
        if not isinstance(kind, str):
            return value
        if kind in _MEDIA:
            raise refusal(
                "unsupported_value", f"{kind} is not supported, only text is", param="type"
            )
        if kind not in _TEXT_KEYS:
            raise refusal("invalid_value", "it is no kind of text", param="type")
        key = _TEXT_KEYS[kind]
        if not isinstance(value.get(key), str):
            raise refusal("missing_required_parameter", f"'{key}' must be a text", param=key)
        return value


Texts = Annotated[
    Annotated[str, Tag(TEXT_BRANCH)]
    | Annotated[list[Part], Field(fail_fast=True), Tag(LIST_BRANCH)],
    Discriminator(text_or_list),
]


class InputMessage(Controlled):
    """With or without `type` and `status`: typed by hand, or what an earlier response said."""

    id: ItemId | None = None
    role: Role
    content: Texts
    status: ItemStatus | None = None

    @model_validator(mode="after")
    def _says_something(self) -> "InputMessage":
        if self.role != "assistant" and self.content == []:
            raise refusal("empty_array", f"a {self.role} message needs a part", param="content")
        return self

    def item(self, index: int, *, response_id: str) -> Item:
        parts = [self.content] if isinstance(self.content, str) else self.content
        return MessageItem(
            id=self.id or input_id("message", response_id, index),
            status=self.status or "completed",
            role=self.role,
            content=[_part(part, is_answer=self.role == "assistant") for part in parts],
        )


class InputCall(Controlled):
    """`arguments` is JSON text, or what should have been; an object is taken as well."""

    id: ItemId | None = None
    call_id: ItemId
    name: str
    arguments: Arguments
    status: ItemStatus | None = None

    def item(self, index: int, *, response_id: str) -> Item:
        given = self.arguments
        return CallItem(
            id=self.id or input_id("function_call", response_id, index),
            status=self.status or "completed",
            call_id=self.call_id,
            name=self.name,
            arguments=given if isinstance(given, str) else json.dumps(given, ensure_ascii=False),
        )


class InputCallOutput(Controlled):
    id: ItemId | None = None
    call_id: ItemId
    output: Texts
    status: ItemStatus | None = None

    def item(self, index: int, *, response_id: str) -> Item:
        given = self.output
        return CallOutputItem(
            id=self.id or input_id("function_call_output", response_id, index),
            status=self.status or "completed",
            call_id=self.call_id,
            output=given if isinstance(given, str) else [InputText(part.text) for part in given],
        )


class InputReasoning(Controlled):
    """What a model thought before; of a summary or of encrypted text no model here can make
    anything."""

    id: ItemId | None = None
    content: list[Part] | None = Field(None, fail_fast=True)
    status: ItemStatus | None = None

    def item(self, index: int, *, response_id: str) -> Item:
        return ReasoningItem(
            id=self.id or input_id("reasoning", response_id, index),
            status=self.status or "completed",
            content=[ReasoningText(part.text) for part in self.content or ()],
        )


class ItemReference(Controlled):
    """An item of a response that is kept here."""

    id: ItemId


def _kind(value: Any) -> str | None:
    """What an item is; a message and a reference may leave it out."""
    kind = value.get("type")
    if kind is None and "role" not in value and "id" in value:
        return "item_reference"
    return "message" if kind is None else kind


def _known(value: Any) -> Any:
    if isinstance(value, dict) and _kind(value) not in _KINDS:
        raise refusal(
            "invalid_value", f"this server takes items of type {', '.join(_KINDS)}", param="type"
        )
    return value


def _branch(value: Any) -> str:
    return f"<{_kind(value) if isinstance(value, dict) else 'message'}>"


InputItem = Annotated[
    Annotated[
        Annotated[InputMessage, Tag("<message>")]
        | Annotated[InputCall, Tag("<function_call>")]
        | Annotated[InputCallOutput, Tag("<function_call_output>")]
        | Annotated[InputReasoning, Tag("<reasoning>")]
        | Annotated[ItemReference, Tag("<item_reference>")],
        Discriminator(_branch),
    ],
    BeforeValidator(_known),
]


def input_entries(
    given: str | Sequence[InputItem], *, response_id: str
) -> tuple[Item | ItemReference, ...]:
    """What the request of that response brings; each item has an id, and no two have the same."""
    if isinstance(given, str):
        given = [InputMessage(role="user", content=given)]
    entries: list[Item | ItemReference] = []
    taken: set[str] = set()
    for index, entry in enumerate(given):
        if isinstance(entry, ItemReference):
            entries.append(entry)
            continue
        item = entry.item(index, response_id=response_id)
        if item.id in taken:
            nameless = entry.model_copy(update={"id": None})
            item = nameless.item(index, response_id=response_id)
        taken.add(item.id)
        entries.append(item)
    return tuple(entries)


def input_breakpoints(
    given: str | Sequence[InputItem], entries: Sequence[Item | ItemReference]
) -> dict[str, tuple[Breakpoint, ...]]:
    """Those of each item that has any, by its id; of which message they are is not known yet."""
    if isinstance(given, str):
        return {}
    found = {}
    for one, entry in zip(given, entries, strict=True):
        points = [*_part_breakpoints(one), *breakpoints_of(one, "input")]
        if points:
            found[entry.id] = tuple(points)
    return found


def _part_breakpoints(given: InputItem) -> Iterator[Breakpoint]:
    texts: str | Sequence[Part] | None = None
    name, has_place = "input.content", True
    match given:
        case InputMessage():
            texts = given.content
        case InputCallOutput():
            texts, name = given.output, "input.output"
        case InputReasoning():  # in the message it stands beside the content
            texts, has_place = given.content, False
    for index, part in enumerate(texts if isinstance(texts, list) else ()):
        yield from breakpoints_of(part, name, part=index if has_place else None)


def _part(part: "str | Part", *, is_answer: bool) -> MessagePart:
    if not isinstance(part, str) and part.type == "refusal":
        return Refusal(part.refusal)
    text = part if isinstance(part, str) else part.text
    return OutputText(text) if is_answer else InputText(text)
