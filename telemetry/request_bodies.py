"""Bodies for the endpoints that a load may use, in the words that a server understands: pure.

Workloads are written as bodies of /v1/chat/completions; the others are made of these.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from telemetry.workloads import Body, Message

# Fields that a server may not know, and what its answers then lack.
OPTIONAL_FIELDS = {
    "return_token_ids": "what could have been cached is not known",
    "ignore_eos": "answers may be shorter than asked for",
    "stream_options": "tokens are counted by the pieces of text that came",
    "temperature": "answers are not greedy",
}
MAX_TOKENS, NEWER_MAX_TOKENS = "max_tokens", "max_completion_tokens"


class Endpoint(StrEnum):
    CHAT = "chat"
    COMPLETIONS = "completions"
    RESPONSES = "responses"

    @property
    def path(self) -> str:
        return "/chat/completions" if self is Endpoint.CHAT else f"/{self.value}"


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one server is spoken to. `without` are fields that it refuses; `tells_ids`: it says which
    tokens it read and made; `tells_usage`: it counts them."""

    endpoint: Endpoint = Endpoint.CHAT
    without: frozenset[str] = frozenset()
    tells_ids: bool = False
    tells_usage: bool = True

    def leaving_out(self, field: str) -> "Dialect":
        return replace(self, without=self.without | {field})

    def body(self, chat: Body) -> Body:
        """Of a streamed chat body."""
        body = {name: value for name, value in chat.items() if name not in self.without}
        if MAX_TOKENS in chat and MAX_TOKENS in self.without:
            body[NEWER_MAX_TOKENS] = chat[MAX_TOKENS]
        if self.tells_ids and "return_token_ids" not in self.without:
            body["return_token_ids"] = True
        match self.endpoint:
            case Endpoint.CHAT:
                return body
            case Endpoint.COMPLETIONS:
                return _completion(body)
            case Endpoint.RESPONSES:
                return _response(body)


def _completion(chat: Body) -> Body:
    """The messages' texts one after the other."""
    texts = [_text_of(message) for message in chat["messages"]]
    rest = {name: chat[name] for name in chat if name not in ("messages", "tools", "tool_choice")}
    return {**rest, "prompt": "\n\n".join(texts) + "\n\n"}


def _response(chat: Body) -> Body:
    """Kept nowhere, as every request has its whole conversation."""
    dropped = {"messages", MAX_TOKENS, NEWER_MAX_TOKENS, "stream_options", "response_format"}
    dropped |= {"tools", "return_token_ids"}
    body = {name: value for name, value in chat.items() if name not in dropped}
    body |= {"input": [item for one in chat["messages"] for item in _items(one)], "store": False}
    limit = chat.get(MAX_TOKENS, chat.get(NEWER_MAX_TOKENS))
    if limit is not None:
        body["max_output_tokens"] = limit
    if tools := chat.get("tools"):
        body["tools"] = [{"type": "function", **tool["function"]} for tool in tools]
    wanted = chat.get("response_format")
    if isinstance(wanted, dict) and isinstance(named := wanted.get("json_schema"), dict):
        body["text"] = {"format": {"type": "json_schema", **named}}
    return body


def _items(message: Message) -> Sequence[Mapping[str, Any]]:
    if message["role"] == "tool":
        output, call_id = _text_of(message), message["tool_call_id"]
        return ({"type": "function_call_output", "call_id": call_id, "output": output},)
    calls = [
        {"type": "function_call", "call_id": call["id"], **call["function"]}
        for call in message.get("tool_calls") or ()
    ]
    said = {"role": message["role"], "content": message.get("content")}
    return (*((said,) if said["content"] else ()), *calls)


def _text_of(message: Message) -> str:
    """Also of content in parts."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    return "".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))
