"""Answers of /v1/chat/completions: the whole object, and the chunks of a stream.

A chunk's constant parts are encoded once per choice; a delta costs one JSON string.
"""

from typing import Literal

import msgspec

from gateway.errors import GatewayError
from gateway.generation import ChoiceFinished, LogprobEntry, TextDelta, Usage
from gateway.schemas.answer import AnswerHead, ChoiceResult
from gateway.schemas.usage import UsageBody
from gateway.sse import DONE, error_frame
from gateway.tools.calls import ToolFragment

_encode = msgspec.json.encode


class TopLogprob(msgspec.Struct, frozen=True):
    token: str
    logprob: float | None
    bytes: list[int]


class TokenLogprobs(msgspec.Struct, frozen=True):
    token: str
    logprob: float | None
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChoiceLogprobs(msgspec.Struct, frozen=True):
    content: list[TokenLogprobs]
    refusal: None = None


class CalledFunction(msgspec.Struct, frozen=True):
    name: str
    arguments: str


class MessageToolCall(msgspec.Struct, frozen=True):
    id: str
    function: CalledFunction
    type: Literal["function"] = "function"


class ChatMessage(msgspec.Struct, frozen=True):
    """`content` is null where there are calls only. `reasoning_content`, as DeepSeek and vLLM have
    it, is not OpenAI's."""

    content: str | None
    role: Literal["assistant"] = "assistant"
    refusal: None = None
    tool_calls: list[MessageToolCall] | msgspec.UnsetType = msgspec.UNSET
    reasoning_content: str | msgspec.UnsetType = msgspec.UNSET


class ChatChoice(msgspec.Struct, frozen=True):
    index: int
    message: ChatMessage
    logprobs: ChoiceLogprobs | None
    finish_reason: str
    token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET


class ChatCompletion(msgspec.Struct, frozen=True, omit_defaults=True):
    """Optional keys with their defaults are left out; required ones have none."""

    id: str
    object: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: UsageBody
    system_fingerprint: str
    service_tier: str | None = None
    metadata: dict[str, str] | None = None
    prompt_token_ids: tuple[int, ...] | None = None


class ChatPresenter:
    """Wire shape of one chat request."""

    def __init__(self, head: AnswerHead) -> None:
        self._head = head
        self._before = _chunk_start(head)
        self._after = b',"usage":null}\n\n' if head.includes_usage else b"}\n\n"
        self._starts = [
            self._before + b'[{"index":%d,"delta":{"content":' % index
            for index in range(head.num_choices)
        ]
        self._plain_end = b'},"logprobs":null,"finish_reason":null}]' + self._after

    def opening(self) -> bytes:
        return b"".join(
            self._before
            + b'[{"index":%d,"delta":{"role":"assistant","content":"","refusal":null}' % index
            + b',"logprobs":null,"finish_reason":null}]'
            + self._after
            for index in range(self._head.num_choices)
        )

    def delta(self, delta: TextDelta) -> bytes:
        if not delta.reasoning and not delta.tool_calls:
            return self._content(delta)
        thought = b""
        if delta.reasoning:
            start = self._before + b'[{"index":%d,"delta":{"reasoning_content":' % delta.choice
            thought = start + _encode(delta.reasoning) + self._plain_end
        calls = [self._call(delta.choice, fragment) for fragment in delta.tool_calls]
        return b"".join((thought, self._content(delta), *calls))

    def _call(self, choice: int, fragment: ToolFragment) -> bytes:
        """Clients join what comes under one index, so that id and name come once."""
        piece: dict[str, object] = {"index": fragment.index}
        function = {"arguments": fragment.arguments}
        if fragment.call_id is not None:
            piece |= {"id": fragment.call_id, "type": "function"}
            function = {"name": fragment.name or "", **function}
        start = self._before + b'[{"index":%d,"delta":{"tool_calls":[' % choice
        return start + _encode({**piece, "function": function}) + b"]" + self._plain_end

    def _content(self, delta: TextDelta) -> bytes:
        has_logprobs = self._head.has_logprobs and bool(delta.logprobs)
        has_ids = bool(delta.token_ids) or delta.prompt_token_ids is not None
        if not has_logprobs and not has_ids:
            if not delta.text:
                return b""
            return self._starts[delta.choice] + _encode(delta.text) + self._plain_end
        logprobs = _encode(chat_logprobs(delta.logprobs)) if has_logprobs else b"null"
        return (
            self._starts[delta.choice]
            + _encode(delta.text)
            + b'},"logprobs":'
            + logprobs
            + b',"finish_reason":null'
            + (b',"token_ids":' + _encode(delta.token_ids) if delta.token_ids else b"")
            + b"}]"
            + self._prompt_ids(delta)
            + self._after
        )

    def _prompt_ids(self, delta: TextDelta) -> bytes:
        """Once an answer, as all choices have the one prompt."""
        if delta.prompt_token_ids is None or delta.choice:
            return b""
        return b',"prompt_token_ids":' + _encode(delta.prompt_token_ids)

    def finish(self, finished: ChoiceFinished) -> bytes:
        return (
            self._before
            + b'[{"index":%d,"delta":{},"logprobs":null,"finish_reason":' % finished.choice
            + _encode(finished.reason)
            + b"}]"
            + self._after
        )

    def closing(self, usage: Usage) -> bytes:
        if not self._head.includes_usage:
            return DONE
        return self._before + b'[],"usage":' + _encode(UsageBody.of(usage)) + b"}\n\n" + DONE

    def failure(self, error: GatewayError) -> bytes:
        return error_frame(error)

    def silence(self) -> bytes:
        return self._starts[0] + b'""' + self._plain_end

    def body(self, choices: list[ChoiceResult], usage: Usage) -> ChatCompletion:
        head = self._head
        return ChatCompletion(
            id=head.id,
            object="chat.completion",
            created=head.created,
            model=head.model,
            choices=[self._choice(index, choice) for index, choice in enumerate(choices)],
            usage=UsageBody.of(usage),
            system_fingerprint=head.system_fingerprint,
            service_tier=head.service_tier,
            metadata=head.metadata,
            prompt_token_ids=choices[0].prompt_token_ids,
        )

    def _choice(self, index: int, choice: ChoiceResult) -> ChatChoice:
        return ChatChoice(
            index=index,
            message=_message(choice),
            logprobs=chat_logprobs(choice.logprobs) if self._head.has_logprobs else None,
            finish_reason=choice.finish_reason,
            token_ids=choice.shown_ids,
        )


def _message(choice: ChoiceResult) -> ChatMessage:
    calls = [
        MessageToolCall(call.call_id, CalledFunction(call.name, call.arguments))
        for call in choice.tool_calls
    ]
    return ChatMessage(
        content=None if calls and not choice.text else choice.text,
        tool_calls=calls or msgspec.UNSET,
        reasoning_content=choice.reasoning,
    )


def chat_logprobs(entries: "list[LogprobEntry] | tuple[LogprobEntry, ...]") -> ChoiceLogprobs:
    return ChoiceLogprobs(
        content=[
            TokenLogprobs(
                token=entry.token,
                logprob=entry.logprob,
                bytes=list(entry.raw),
                top_logprobs=[
                    TopLogprob(top.token, top.logprob, list(top.raw)) for top in entry.top
                ],
            )
            for entry in entries
        ]
    )


def _chunk_start(head: AnswerHead) -> bytes:
    """Everything of a chunk up to the list of its choices."""
    fields: dict[str, object] = {
        "id": head.id,
        "object": "chat.completion.chunk",
        "created": head.created,
        "model": head.model,
        "system_fingerprint": head.system_fingerprint,
    }
    if head.service_tier is not None:
        fields["service_tier"] = head.service_tier
    return b"data: " + _encode(fields)[:-1] + b',"choices":'
