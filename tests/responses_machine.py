"""Reads raw streams of /v1/responses as the strictest client would, and checks their order.

created, in_progress; then items one after the other: added, its part, deltas, all that was said
once more, done; at last the response, which consists of these items. Numbers count up by one.
"""

import json
from dataclasses import dataclass, field
from typing import Any

TERMINALS = {"response.completed", "response.incomplete", "response.failed"}
PARTS: dict[str, tuple[str, dict[str, Any]]] = {
    "message": ("response.output_text", {"type": "output_text", "annotations": []}),
    "reasoning": ("response.reasoning_text", {"type": "reasoning_text"}),
}
REQUIRED = (
    *("id", "object", "created_at", "status", "error", "incomplete_details", "instructions"),
    *("model", "tools", "output", "parallel_tool_calls", "metadata", "tool_choice"),
    *("temperature", "top_p", "usage"),
)


@dataclass(eq=False, slots=True)
class StreamedResponse:
    """What a stream said: the response of its last event, the texts its deltas add up to, by item,
    and the types of all events."""

    response: dict[str, Any]
    texts: list[str]
    types: list[str]
    num_comments: int


@dataclass(eq=False, slots=True)
class _OpenItem:
    item: dict[str, Any]
    index: int
    pieces: list[str] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.pieces)


def read_events(body: bytes) -> tuple[list[dict[str, Any]], int]:
    """The events and the number of comments; anything else in the stream fails."""
    text = body.decode("utf-8")
    assert text.endswith("\n\n"), "the last event is not complete"
    events: list[dict[str, Any]] = []
    num_comments = 0
    for block in text[:-2].split("\n\n"):
        if block.startswith(":"):
            num_comments += 1
            continue
        name, data = block.split("\n")
        assert name.startswith("event: ")
        assert data.startswith("data: ")
        events.append(json.loads(data.removeprefix("data: ")))
        assert events[-1]["type"] == name.removeprefix("event: ")
    return events, num_comments


class _Machine:
    def __init__(self) -> None:
        self._open: _OpenItem | None = None
        self._id = ""
        self.done: list[dict[str, Any]] = []
        self.texts: list[str] = []
        self.final: dict[str, Any] | None = None

    def take(self, event: dict[str, Any]) -> None:
        kind = event["type"]
        assert self.final is None, f"after the end: {kind}"
        if kind in TERMINALS:
            self._end(kind, event["response"])
        elif kind in ("response.created", "response.in_progress"):
            self._begin(event["response"])
        elif kind == "response.output_item.added":
            self._add_item(event)
        elif kind == "response.output_item.done":
            self._end_item(event)
        else:
            self._inside(kind, event)

    def _begin(self, response: dict[str, Any]) -> None:
        self._check_response(response, status="in_progress")
        assert response["output"] == []
        assert response["usage"] is None

    def _check_response(self, response: dict[str, Any], *, status: str) -> None:
        assert set(REQUIRED) <= set(response)
        self._id = self._id or response["id"]
        assert (response["id"], response["status"]) == (self._id, status)

    def _add_item(self, event: dict[str, Any]) -> None:
        item = event["item"]
        assert self._open is None, "an item began inside another"
        assert event["output_index"] == len(self.done)
        assert item["status"] == "in_progress"
        if item["type"] == "function_call":
            assert item["arguments"] == ""
            assert item["call_id"]
            assert item["name"]
        else:
            assert item["content"] == []
        self._open = _OpenItem(item, event["output_index"])

    def _inside(self, kind: str, event: dict[str, Any]) -> None:
        opened = self._open
        assert opened is not None, f"outside of an item: {kind}"
        assert (event["item_id"], event["output_index"]) == (opened.item["id"], opened.index)
        opened.steps.append(kind)
        if opened.item["type"] == "function_call":
            self._inside_call(opened, kind, event)
        else:
            self._inside_part(opened, kind, event)

    def _inside_call(self, opened: _OpenItem, kind: str, event: dict[str, Any]) -> None:
        base = "response.function_call_arguments"
        if kind == f"{base}.delta":
            assert f"{base}.done" not in opened.steps
            opened.pieces.append(event["delta"])
        else:
            assert kind == f"{base}.done"
            assert (event["name"], event["arguments"]) == (opened.item["name"], opened.text)

    def _inside_part(self, opened: _OpenItem, kind: str, event: dict[str, Any]) -> None:
        base, shape = PARTS[opened.item["type"]]
        assert event["content_index"] == 0
        empty = {**shape, "text": ""}
        if base == "response.output_text":
            empty["logprobs"] = []
        if kind == "response.content_part.added":
            assert opened.steps == [kind], "a part began late, or twice"
            assert event["part"] == empty
            return
        assert opened.steps[0] == "response.content_part.added", f"before the part: {kind}"
        if kind == f"{base}.delta":
            assert f"{base}.done" not in opened.steps
            opened.pieces.append(event["delta"])
            opened.logprobs += event.get("logprobs", [])
            assert ("logprobs" in event) == ("logprobs" in empty)
        elif kind == f"{base}.done":
            assert event["text"] == opened.text
            assert event.get("logprobs", []) == opened.logprobs
        else:
            assert kind == "response.content_part.done"
            assert opened.steps[-2] == f"{base}.done"
            whole = {**empty, "text": opened.text}
            if "logprobs" in empty:
                whole["logprobs"] = opened.logprobs
            assert event["part"] == whole

    def _end_item(self, event: dict[str, Any]) -> None:
        opened, item = self._open, event["item"]
        assert opened is not None
        assert event["output_index"] == opened.index
        assert item["status"] in ("completed", "incomplete")
        assert {key: item[key] for key in ("id", "type")} == {
            key: opened.item[key] for key in ("id", "type")
        }
        if item["type"] == "function_call":
            assert opened.steps[-1] == "response.function_call_arguments.done"
            assert item["arguments"] == opened.text
        else:
            assert opened.steps[-1] == "response.content_part.done"
            assert [part["text"] for part in item["content"]] == [opened.text]
        self.done.append(item)
        self.texts.append(opened.text)
        self._open = None

    def _end(self, kind: str, response: dict[str, Any]) -> None:
        status = kind.removeprefix("response.")
        self._check_response(response, status=status)
        self.final = response
        if status == "failed":
            assert set(response["error"]) >= {"code", "message"}
            assert response["output"][: len(self.done)] == self.done
            return
        assert self._open is None, "the end came inside an item"
        assert response["output"] == self.done
        check_ended(response)


def check_ended(response: dict[str, Any]) -> None:
    """What is true of every complete response, streamed or not."""
    usage, items = response["usage"], response["output"]
    assert usage["input_tokens"] + usage["output_tokens"] == usage["total_tokens"]
    assert set(usage["input_tokens_details"]) == {"cached_tokens", "cache_write_tokens"}
    assert usage["output_tokens_details"]["reasoning_tokens"] <= usage["output_tokens"]
    statuses = [item["status"] for item in items]
    if response["status"] == "completed":
        assert response["incomplete_details"] is None
        assert set(statuses) <= {"completed"}
    else:
        assert response["status"] == "incomplete"
        assert response["incomplete_details"] == {"reason": "max_output_tokens"}
        assert statuses[-1:] in ([], ["incomplete"])
        assert "incomplete" not in statuses[:-1]
    assert response["error"] is None
    assert len({item["id"] for item in items}) == len(items)


def check_responses_stream(body: bytes) -> StreamedResponse:
    """Fails where the stream leaves the order; gives what it said."""
    events, num_comments = read_events(body)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    types = [event["type"] for event in events]
    assert types[:2] == ["response.created", "response.in_progress"]
    assert types.count("response.created") == types.count("response.in_progress") == 1
    machine = _Machine()
    for event in events:
        machine.take(event)
    assert machine.final is not None, "the stream has no end"
    return StreamedResponse(machine.final, machine.texts, types, num_comments)
