"""The items that a response is made of, as they are sent, kept and listed: what went in and what
came out have the same shapes."""

from typing import Literal

import msgspec

from gateway.schemas.chat_response import TokenLogprobs

ItemStatus = Literal["in_progress", "completed", "incomplete"]
Role = Literal["user", "assistant", "system", "developer"]


class InputText(msgspec.Struct, frozen=True, tag_field="type", tag="input_text"):
    text: str


class OutputText(msgspec.Struct, frozen=True, tag_field="type", tag="output_text"):
    """There are no annotations: nothing is searched or cited here."""

    text: str
    annotations: list[None] = []
    logprobs: list[TokenLogprobs] = []


class Refusal(msgspec.Struct, frozen=True, tag_field="type", tag="refusal"):
    refusal: str


class ReasoningText(msgspec.Struct, frozen=True, tag_field="type", tag="reasoning_text"):
    text: str


MessagePart = InputText | OutputText | Refusal


class MessageItem(msgspec.Struct, frozen=True, tag_field="type", tag="message"):
    id: str
    status: ItemStatus
    role: Role
    content: list[MessagePart]


class ReasoningItem(msgspec.Struct, frozen=True, tag_field="type", tag="reasoning"):
    """`summary` has no entries: what a model thought is given as it is."""

    id: str
    status: ItemStatus
    summary: list[None] = []
    content: list[ReasoningText] = []


class CallItem(msgspec.Struct, frozen=True, tag_field="type", tag="function_call"):
    id: str
    status: ItemStatus
    call_id: str
    name: str
    arguments: str


class CallOutputItem(msgspec.Struct, frozen=True, tag_field="type", tag="function_call_output"):
    id: str
    status: ItemStatus
    call_id: str
    output: str | list[InputText]


Item = MessageItem | ReasoningItem | CallItem | CallOutputItem

RESPONSE_PREFIX = "resp_"
_PREFIXES: dict[str, str] = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
}


def output_id(kind: str, response_id: str, index: int) -> str:
    """The id of an item of the answer. It says of which response it is, so that a reference to an
    item finds it without an index."""
    return f"{_PREFIXES[kind]}_{response_id.removeprefix(RESPONSE_PREFIX)}_{index}"


def input_id(kind: str, response_id: str, index: int) -> str:
    """The id of an item that the request brought without one of its own."""
    return f"{_PREFIXES[kind]}_{response_id.removeprefix(RESPONSE_PREFIX)}_i{index}"


def response_id_of(item_id: str) -> str | None:
    """The response that an id made here belongs to."""
    parts = item_id.split("_")
    return RESPONSE_PREFIX + parts[1] if len(parts) == 3 else None
