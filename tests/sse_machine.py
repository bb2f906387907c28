"""Reads raw streams as the strictest client would, and checks the order of their chunks.

Chat: one role chunk per choice in index order, contents, one finish chunk per choice, the usage
chunk if asked for, [DONE]. An error object ends the stream instead, and nothing follows it.
"""

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

DONE = "[DONE]"
FINISH_REASONS = {"stop", "length", "tool_calls", "content_filter", "function_call"}
HEAD_KEYS = ("id", "object", "created", "model", "system_fingerprint")


@dataclass(eq=False, slots=True)
class StreamedAnswer:
    """What a stream said, put together. `num_comments` are its keep-alives."""

    texts: list[str]
    thoughts: list[str]
    finish_reasons: list[str | None]
    logprobs: list[list[Any]]
    calls: list[list[dict[str, Any]]]
    token_ids: list[list[int]]
    prompt_token_ids: list[list[int]] = field(default_factory=list)
    usage: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    num_comments: int = 0
    head: dict[str, Any] = field(default_factory=dict)


def read_data(body: bytes) -> tuple[list[str], int]:
    """The data of each event and the number of comments; anything else in the stream fails."""
    text = body.decode("utf-8")
    assert text.endswith("\n\n"), "the last event is not complete"
    data: list[str] = []
    num_comments = 0
    for block in text[:-2].split("\n\n"):
        assert "\n" not in block, f"an event of several lines: {block!r}"
        if block.startswith(":"):
            num_comments += 1
            continue
        assert block.startswith("data: "), f"neither data nor comment: {block!r}"
        assert block.removeprefix("data: "), "an event without data"
        data.append(block.removeprefix("data: "))
    return data, num_comments


class _Machine(ABC):
    """The states that both kinds of stream share; the subclass knows a choice's shape."""

    object_name: str

    def __init__(self, *, num_choices: int, includes_usage: bool) -> None:
        self._includes_usage = includes_usage
        self._is_done = False
        self.answer = StreamedAnswer(
            texts=[""] * num_choices,
            thoughts=[""] * num_choices,
            finish_reasons=[None] * num_choices,
            logprobs=[[] for _ in range(num_choices)],
            calls=[[] for _ in range(num_choices)],
            token_ids=[[] for _ in range(num_choices)],
        )

    def run(self, body: bytes) -> StreamedAnswer:
        data, self.answer.num_comments = read_data(body)
        for item in data:
            assert not self._is_done, f"after [DONE]: {item}"
            assert self.answer.error is None, f"after an error: {item}"
            if item == DONE:
                self._done()
            else:
                self._object(json.loads(item))
        assert self._is_done or self.answer.error is not None, "the stream has no end mark"
        return self.answer

    def _done(self) -> None:
        assert None not in self.answer.finish_reasons, "a choice did not finish"
        assert (self.answer.usage is not None) == self._includes_usage
        self._is_done = True

    def _object(self, chunk: dict[str, Any]) -> None:
        if "error" in chunk:
            assert set(chunk["error"]) == {"message", "type", "param", "code"}
            self.answer.error = chunk["error"]
            return
        self._check_head(chunk)
        assert self.answer.usage is None, f"a chunk after the usage chunk: {chunk}"
        if chunk["choices"]:
            assert ("usage" in chunk) == self._includes_usage
            assert chunk.get("usage") is None
            (choice,) = chunk["choices"]
            self._choice(choice)
            self.answer.token_ids[choice["index"]] += choice.get("token_ids", [])
            for place in (chunk, choice):
                if "prompt_token_ids" in place:
                    self.answer.prompt_token_ids.append(place["prompt_token_ids"])
        else:
            assert None not in self.answer.finish_reasons, "usage before the choices finished"
            self.answer.usage = chunk["usage"]

    def _check_head(self, chunk: dict[str, Any]) -> None:
        head = {key: chunk[key] for key in HEAD_KEYS}
        assert head["object"] == self.object_name
        assert isinstance(head["created"], int)
        self.answer.head = self.answer.head or head
        assert head == self.answer.head, "chunks of one stream differ in their head"

    @abstractmethod
    def _choice(self, choice: dict[str, Any]) -> None:
        """Takes one entry of a chunk's choices."""

    def _think(self, index: int, text: str) -> None:
        assert text, "a chunk of reasoning that says nothing"
        assert self.answer.texts[index] == "", "reasoning after the answer began"
        self.answer.thoughts[index] += text

    def _finish(self, index: int, reason: str) -> None:
        assert reason in FINISH_REASONS
        assert self.answer.finish_reasons[index] is None, "a choice finished twice"
        self.answer.finish_reasons[index] = reason


class _ChatMachine(_Machine):
    object_name = "chat.completion.chunk"

    def __init__(self, *, num_choices: int, includes_usage: bool) -> None:
        super().__init__(num_choices=num_choices, includes_usage=includes_usage)
        self._num_roles = 0

    def _choice(self, choice: dict[str, Any]) -> None:
        assert {"index", "delta", "finish_reason"} <= set(choice)
        index, delta = choice["index"], choice["delta"]
        if self._num_roles < len(self.answer.texts):
            assert index == self._num_roles, "role chunks are not in index order"
            assert delta.get("role") == "assistant", f"no role chunk: {choice}"
            assert delta["content"] == ""
            assert choice["finish_reason"] is None
            self._num_roles += 1
            return
        assert self.answer.finish_reasons[index] is None, "a delta after the finish chunk"
        if choice["finish_reason"] is not None:
            assert delta == {}
            self._finish(index, choice["finish_reason"])
            return
        if "reasoning_content" in delta:
            assert set(delta) == {"reasoning_content"}, f"more than reasoning in a delta: {delta}"
            self._think(index, delta["reasoning_content"])
            return
        if "tool_calls" in delta:
            assert set(delta) == {"tool_calls"}, f"more than calls in a delta: {delta}"
            for fragment in delta["tool_calls"]:
                self._call(index, fragment)
            return
        assert set(delta) == {"content"}, f"more than content in a delta: {delta}"
        assert not delta["content"] or not self.answer.calls[index], "content after a call"
        self.answer.texts[index] += delta["content"]
        if choice.get("logprobs") is not None:
            self.answer.logprobs[index] += choice["logprobs"]["content"]

    def _call(self, choice: int, fragment: dict[str, Any]) -> None:
        """Dense indices; id, type and name in a call's first fragment and in no other."""
        calls = self.answer.calls[choice]
        if fragment["index"] == len(calls):
            assert set(fragment) == {"index", "id", "type", "function"}
            assert fragment["type"] == "function"
            assert fragment["id"]
            assert fragment["function"]["name"]
            assert fragment["function"]["arguments"] == ""
            calls.append({"id": fragment["id"], **fragment["function"]})
            return
        assert fragment["index"] == len(calls) - 1, "a fragment of an earlier call"
        assert set(fragment) == {"index", "function"}
        assert set(fragment["function"]) == {"arguments"}
        calls[-1]["arguments"] += fragment["function"]["arguments"]


class _CompletionMachine(_Machine):
    object_name = "text_completion"

    def _choice(self, choice: dict[str, Any]) -> None:
        assert {"index", "text", "logprobs", "finish_reason"} <= set(choice)
        index = choice["index"]
        assert self.answer.finish_reasons[index] is None, "text after the finish chunk"
        if "reasoning_content" in choice:
            assert not choice["text"], f"more than reasoning in a chunk: {choice}"
            self._think(index, choice["reasoning_content"])
        self.answer.texts[index] += choice["text"]
        if choice["logprobs"] is not None:
            self.answer.logprobs[index] += choice["logprobs"]["tokens"]
        if choice["finish_reason"] is not None:
            self._finish(index, choice["finish_reason"])


def check_chat_stream(
    body: bytes, *, num_choices: int = 1, includes_usage: bool = False
) -> StreamedAnswer:
    """Fails where the stream leaves the order; gives what it said."""
    return _ChatMachine(num_choices=num_choices, includes_usage=includes_usage).run(body)


def check_completion_stream(
    body: bytes, *, num_choices: int = 1, includes_usage: bool = False
) -> StreamedAnswer:
    """As check_chat_stream, for /v1/completions."""
    return _CompletionMachine(num_choices=num_choices, includes_usage=includes_usage).run(body)
