"""Prompts that end inside the last message, for an answer that goes on with it.

Where that content ends in the rendered text is found by a mark, as a template may put anything
after it. Called by ChatTemplate.
"""

import secrets
from collections.abc import Callable, Sequence

from gateway.errors import InvalidRequest
from gateway.message_shapes import Message, plain_text


def continued(messages: Sequence[Message], render: Callable[[list[Message]], str]) -> str:
    """The text up to the end of the last content, which stands there as the client wrote it.

    Raises: InvalidRequest where there is no such place.
    """
    *before, last = messages
    if last.get("tool_calls"):
        raise _refusal("a message with tool calls cannot be continued")
    # Nothing that a client writes looks like one of these.
    start, end = (f"mark_{secrets.token_hex(8)}" for _ in range(2))
    text = render([*before, {**last, "content": _marked(last["content"], start, end)}])
    if text.count(start) == 1 and text.count(end) == 1:
        return text[: text.index(start)] + plain_text(last["content"])
    # A template that takes a content apart, such as one with reasoning before the answer, may move
    # or drop the first mark.
    text = render([*before, {**last, "content": _marked(last["content"], "", end)}])
    if text.count(end) != 1:
        raise _refusal("the model's chat template does not show the content of the last message")
    return text[: text.index(end)]


def _marked(content: str | list[Message], start: str, end: str) -> str | list[Message]:
    if isinstance(content, str):
        return f"{start}{content}{end}"
    parts = content or [{"type": "text", "text": ""}]
    parts = [{**parts[0], "text": start + parts[0]["text"]}, *parts[1:]]
    return [*parts[:-1], {**parts[-1], "text": parts[-1]["text"] + end}]


def _refusal(reason: str) -> InvalidRequest:
    return InvalidRequest(
        f"The last message cannot be continued: {reason}.", param="continue_final_message"
    )
