"""The fields of a request that make up a conversation for the model's chat template, and the prompt
that they are. Chat takes them to answer it, the tokenize route to count it."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from pydantic import model_validator

from gateway.cache_wish import Breakpoint
from gateway.generation import ChatPrompt
from gateway.schemas.caching import Controlled, breakpoints_of
from gateway.schemas.fields import refusal
from gateway.schemas.messages import Message
from gateway.schemas.tools import ToolFields
from gateway.template_options import template_options

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class ConversationFields(ToolFields):
    """All but the messages, which not every request must have."""

    reasoning_effort: ReasoningEffort | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None

    @model_validator(mode="after")
    def _one_way_to_go_on(self) -> "ConversationFields":
        if self.continue_final_message and self.add_generation_prompt:
            raise refusal(
                "invalid_value",
                "a message is gone on with or a new one begun",
                param="continue_final_message",
            )
        return self


def chat_prompt(
    fields: ConversationFields,
    messages: Sequence[Message],
    *,
    tools: tuple[dict[str, Any], ...],
    adds_special: bool,
) -> ChatPrompt:
    """What the model's template is given.

    Raises: InvalidRequest for template variables that a request may not set.
    """
    continues_last = bool(fields.continue_final_message)
    adds_prompt = fields.add_generation_prompt
    return ChatPrompt(
        messages=tuple(message.as_dict() for message in messages),
        tools=tools,
        options=template_options(
            fields.chat_template_kwargs, reasoning_effort=fields.reasoning_effort
        ),
        adds_generation_prompt=not continues_last if adds_prompt is None else adds_prompt,
        continues_last=continues_last,
        adds_special=adds_special,
        breakpoints=(*tool_breakpoints(fields.tools or ()), *_message_breakpoints(messages)),
    )


def tool_breakpoints(tools: Sequence[Controlled]) -> tuple[Breakpoint, ...]:
    return tuple(point for tool in tools for point in breakpoints_of(tool, "tools"))


def _message_breakpoints(messages: Sequence[Message]) -> Iterator[Breakpoint]:
    """In the order of the prompt."""
    for index, message in enumerate(messages):
        parts = message.content if isinstance(message.content, list) else ()
        for number, part in enumerate(parts):
            yield from breakpoints_of(part, "messages.content", message=index, part=number)
        yield from breakpoints_of(message, "messages", message=index)
