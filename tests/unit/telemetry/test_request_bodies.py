"""Bodies of the three endpoints, and what their streams say."""

import json
from typing import Any

import pytest

from telemetry.answer_stream import RecordedStream, StreamError, read_answer
from telemetry.bench_run import FailureKind
from telemetry.request_bodies import Dialect, Endpoint
from telemetry.workloads import Body

TOOL = {
    "type": "function",
    "function": {"name": "look", "description": "d", "parameters": {"type": "object"}},
}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
SCHEMA = {"name": "n", "strict": True, "schema": {"type": "object"}}
CHAT: Body = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
        {"role": "assistant", "content": "Yes", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "found"},
    ],
    "max_tokens": 5,
    "temperature": 0,
    "ignore_eos": True,
    "tools": [TOOL],
    "response_format": {"type": "json_schema", "json_schema": SCHEMA},
    "stream": True,
    "stream_options": {"include_usage": True},
}


def test_a_chat_body_is_left_as_it_is_but_for_what_is_refused() -> None:
    assert Dialect().body(CHAT) == CHAT
    without = Dialect(without=frozenset({"ignore_eos", "max_tokens"})).body(CHAT)
    assert "ignore_eos" not in without
    assert (without.get("max_tokens"), without["max_completion_tokens"]) == (None, 5)
    assert Dialect(tells_ids=True).body(CHAT)["return_token_ids"] is True


def test_a_completion_has_the_texts_of_the_messages() -> None:
    body = Dialect(Endpoint.COMPLETIONS).body(CHAT)
    assert body["prompt"] == "Be brief.\n\nHello\n\nYes\n\nfound\n\n"
    assert {"messages", "tools"}.isdisjoint(body)
    assert (body["max_tokens"], body["stream"]) == (5, True)
    assert Endpoint.COMPLETIONS.path == "/completions"


def test_a_response_has_items_and_names_of_its_own() -> None:
    body = Dialect(Endpoint.RESPONSES, without=frozenset({"ignore_eos"}), tells_ids=True).body(CHAT)
    assert body == {
        "model": "m",
        "input": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
            {"role": "assistant", "content": "Yes"},
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "found"},
        ],
        "store": False,
        "stream": True,
        "temperature": 0,
        "max_output_tokens": 5,
        "tools": [{"type": "function", **TOOL["function"]}],  # type: ignore[dict-item]
        "text": {"format": {"type": "json_schema", **SCHEMA}},
    }


def stream(*events: dict[str, Any], done: bool = False) -> RecordedStream:
    pieces = [
        (number * 1_000_000, b"data: " + json.dumps(event).encode() + b"\n\n")
        for number, event in enumerate(events, start=1)
    ]
    return RecordedStream(0, 200, [*pieces, *([(9_000_000, b"data: [DONE]\n\n")] if done else [])])


def test_a_completions_stream_is_read() -> None:
    usage = {"prompt_tokens": 2, "completion_tokens": 2}
    answer = read_answer(
        stream(
            {"choices": [{"text": "a", "prompt_token_ids": [1, 2], "token_ids": [5]}]},
            {"choices": [{"text": "b", "finish_reason": "length"}]},
            {"choices": [], "usage": usage},
            done=True,
        )
    )
    assert (answer.text, answer.prompt_ids, answer.output_ids) == ("ab", (1, 2), (5,))
    assert (answer.finish_reason, answer.output_tokens) == ("length", 2)
    assert answer.timing is not None
    assert answer.timing.itl_s == (0.001,)


def test_a_responses_stream_is_read_and_needs_no_mark_at_its_end() -> None:
    usage = {
        "input_tokens": 9,
        "output_tokens": 3,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens_details": {"reasoning_tokens": 1},
    }
    answer = read_answer(
        stream(
            {"type": "response.created", "response": {}},
            {"type": "response.reasoning_text.delta", "delta": "hm"},
            {"type": "response.output_text.delta", "delta": "yes"},
            {"type": "response.output_text.done", "text": "yes"},
            {"type": "response.completed", "response": {"usage": usage}},
        )
    )
    assert answer.text == "yes"
    assert (answer.prompt_tokens, answer.output_tokens) == (9, 3)
    assert (answer.cached_tokens, answer.reasoning_tokens) == (4, 1)
    assert answer.timing is not None
    assert (answer.timing.ttft_s, answer.timing.itl_s) == (0.002, (0.001,))


@pytest.mark.parametrize(
    "event",
    [
        {"type": "error", "message": "oh"},
        {"type": "response.failed", "response": {"error": {"message": "oh"}}},
        {"error": {"message": "oh"}},
    ],
)
def test_a_stream_that_reports_an_error_is_of_that_kind(event: dict[str, Any]) -> None:
    with pytest.raises(StreamError, match="oh") as error:
        read_answer(stream({"type": "response.created"}, event))
    assert error.value.kind is FailureKind.ERROR_EVENT


def test_an_event_whose_error_is_null_is_none() -> None:
    text = {"choices": [{"delta": {"content": "a"}}], "error": None}
    answer = read_answer(stream(text, done=True), needs_usage=False)
    assert answer.text == "a"


def test_without_a_usage_block_pieces_of_text_are_counted_where_that_will_do() -> None:
    text = {"choices": [{"delta": {"content": "a"}}]}
    answer = read_answer(stream(text, text, done=True), needs_usage=False)
    assert (answer.output_tokens, answer.prompt_tokens, answer.tells_usage) == (2, 0, False)
    with pytest.raises(StreamError, match="no usage block"):
        read_answer(stream(text, done=True))


def test_ids_say_how_many_tokens_a_delta_is_of() -> None:
    events = [
        {"choices": [{"delta": {"content": "a"}, "token_ids": [1]}]},
        {"choices": [{"delta": {"content": ""}, "token_ids": [2]}]},
        {"choices": [{"delta": {"content": "bc"}, "token_ids": [3]}]},
    ]
    answer = read_answer(stream(*events, done=True), needs_usage=False)
    assert answer.timing is not None
    assert answer.timing.itl_s == (0.001, 0.001)
    assert answer.output_ids == (1, 2, 3)


@pytest.mark.parametrize("data", [b"\xff\xfe", b'"text"', b"[]", b"{" * 50_000, b""])
def test_what_is_no_json_object_is_a_broken_stream(data: bytes) -> None:
    with pytest.raises(StreamError) as error:
        read_answer(RecordedStream(0, 200, [(1, b"data: " + data + b"\n\n")]))
    assert error.value.kind is FailureKind.BROKEN_STREAM
