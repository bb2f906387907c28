"""Answers of /v1/responses: what the property of all streams does not say."""

import json
from typing import Any

import msgspec
import pytest

from gateway.errors import ConstraintUnmet, DeadlineExceeded, EngineDied, GatewayError, RateLimited
from gateway.generation import ChoiceFinished, LogprobEntry, TextDelta, Usage
from gateway.schemas.answer import AnswerHead
from gateway.schemas.responses_presenter import ResponsesPresenter
from gateway.schemas.responses_request import ResponsesRequest
from gateway.schemas.responses_response import begun_response
from gateway.sse import PING
from gateway.tools.calls import ToolFragment
from tests.responses_machine import StreamedResponse, check_responses_stream, read_events

USAGE = Usage(7, 3, 5, retried_tokens=4, reasoning_tokens=1)
HELLO = TextDelta(0, "Hello")


def presenter(**parameters: Any) -> ResponsesPresenter:
    head = AnswerHead("resp_0a", created=1, model="m", system_fingerprint="fp", num_choices=1)
    request = ResponsesRequest.model_validate({"model": "alias", "input": "hi", **parameters})
    return ResponsesPresenter(begun_response(head, request, is_kept=True), clock=lambda: 2.5)


def streamed(*deltas: TextDelta, reason: Any = "stop", **parameters: Any) -> StreamedResponse:
    speaker = presenter(**parameters)
    frames = [speaker.opening(), *map(speaker.delta, deltas)]
    frames += [speaker.finish(ChoiceFinished(0, reason)), speaker.closing(USAGE)]
    return check_responses_stream(b"".join(frames))


def call(index: int, *arguments: str) -> TextDelta:
    begin = ToolFragment(index, f"call_{index}", "f")
    rest = tuple(ToolFragment(index, arguments=piece) for piece in arguments)
    return TextDelta(0, "", tool_calls=(begin, *rest))


def test_items_come_in_the_order_in_which_they_were_generated() -> None:
    answer = streamed(
        TextDelta(0, "I look.", reasoning="hm"), call(0, '{"a"', ":1}"), call(1, "{}"), HELLO
    )
    kinds = [item["type"] for item in answer.response["output"]]
    assert kinds == ["reasoning", "message", "function_call", "function_call", "message"]
    assert answer.texts == ["hm", "I look.", '{"a":1}', "{}", "Hello"]
    assert [item["call_id"] for item in answer.response["output"][2:4]] == ["call_0", "call_1"]


def test_each_delta_is_an_event_of_its_own() -> None:
    answer = streamed(HELLO, TextDelta(0, ""), TextDelta(0, " you"))
    assert answer.types.count("response.output_text.delta") == 2


def test_a_cut_call_is_incomplete_and_those_before_it_are_not() -> None:
    answer = streamed(call(0, "{}"), call(1, '{"a'), reason="length")
    assert answer.response["status"] == "incomplete"
    assert [item["status"] for item in answer.response["output"]] == ["completed", "incomplete"]
    assert answer.response["completed_at"] is None


def test_a_complete_answer_without_words_has_an_empty_message() -> None:
    (silent, thoughtful) = (streamed(), streamed(TextDelta(0, "", reasoning="hm")))
    assert [item["type"] for item in silent.response["output"]] == ["message"]
    assert [item["type"] for item in thoughtful.response["output"]] == ["reasoning", "message"]
    assert silent.texts == [""]


def test_an_answer_of_calls_has_no_empty_message() -> None:
    assert len(streamed(call(0, "{}"), reason="tool_calls").response["output"]) == 1


def test_an_answer_that_was_cut_before_its_first_word_has_no_items() -> None:
    assert streamed(reason="length").response["output"] == []


def test_log_probabilities_are_in_the_deltas_and_in_the_part() -> None:
    entry = LogprobEntry("H", b"H", -0.5, (LogprobEntry("H", b"H", -0.5),))
    answer = streamed(TextDelta(0, "H", logprobs=(entry,)))
    (part,) = answer.response["output"][0]["content"]
    top = {"token": "H", "logprob": -0.5, "bytes": [72]}
    assert part["logprobs"] == [{**top, "top_logprobs": [top]}]


def test_a_token_without_text_waits_for_the_message_it_belongs_to() -> None:
    mark = LogprobEntry("<|x|>", b"", -0.5)
    answer = streamed(TextDelta(0, "", logprobs=(mark,)), call(0, "{}"), HELLO)
    first, second = answer.response["output"]
    assert first["type"] == "function_call"
    assert [entry["token"] for entry in second["content"][0]["logprobs"]] == ["<|x|>"]


def test_usage_has_all_details() -> None:
    assert streamed(HELLO).response["usage"] == {
        "input_tokens": 7,
        "input_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 0},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 1, "retried_tokens": 4},
        "total_tokens": 10,
    }


def test_the_response_repeats_what_was_asked_for() -> None:
    tool = {"type": "function", "name": "f", "parameters": {"b": 1, "a": 2}, "strict": True}
    asked = {
        "instructions": "Be brief.",
        "metadata": {"a": "b"},
        "tools": [tool],
        "tool_choice": {"type": "function", "name": "f"},
        "parallel_tool_calls": False,
        "temperature": 0.0,
        "top_p": 0.5,
        "max_output_tokens": 9,
        "previous_response_id": "resp_1",
        "truncation": "auto",
        "reasoning": {"effort": "low"},
        "text": {"format": {"type": "json_object"}},
    }
    response = streamed(HELLO, **asked).response
    told = {name: response[name] for name in asked}
    assert told == {
        **asked,
        "tools": [{**tool, "description": None}],
        "reasoning": {"effort": "low", "summary": None},
    }
    assert (response["created_at"], response["completed_at"]) == (1, 2)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (EngineDied("gone"), "server_error"),
        (DeadlineExceeded("late"), "server_error"),
        (ConstraintUnmet("no"), "server_error"),
        (RateLimited("slow", kind="tokens", wait_s=1), "rate_limit_exceeded"),
    ],
)
def test_a_failure_is_the_last_event_and_has_what_was_said(error: GatewayError, code: str) -> None:
    speaker = presenter()
    frames = (speaker.opening(), speaker.delta(call(0, "{}")), speaker.delta(HELLO))
    answer = check_responses_stream(b"".join((*frames, speaker.failure(error))))
    told = answer.response["error"]
    assert (told["code"], told["message"], told["type"]) == (code, error.message, error.type)
    assert [item["status"] for item in answer.response["output"]] == ["completed", "incomplete"]
    assert answer.response["usage"] is None


def test_a_failure_at_the_end_takes_the_place_of_the_end() -> None:
    speaker = presenter()
    frames = (speaker.opening(), speaker.delta(HELLO), speaker.finish(ChoiceFinished(0, "stop")))
    speaker.closing(USAGE)  # was not sent
    answer = check_responses_stream(b"".join((*frames, speaker.failure(DeadlineExceeded("late")))))
    assert answer.response["status"] == "failed"


def test_silence_is_a_comment_and_breaks_no_numbering() -> None:
    speaker = presenter()
    assert speaker.silence() == PING
    frames = [speaker.opening(), speaker.silence(), speaker.delta(HELLO), speaker.silence()]
    frames += [speaker.finish(ChoiceFinished(0, "stop")), speaker.closing(USAGE)]
    assert check_responses_stream(b"".join(frames)).num_comments == 2


def test_nothing_follows_the_last_event() -> None:
    speaker = presenter()
    closing = speaker.closing(USAGE)
    assert [event["type"] for event in read_events(closing)[0]] == ["response.completed"]


def test_a_piece_of_a_call_that_has_ended_is_an_error_and_not_an_answer() -> None:
    speaker = presenter()
    speaker.delta(call(0, "{}"))
    speaker.delta(HELLO)
    with pytest.raises(GatewayError):
        speaker.delta(TextDelta(0, "", tool_calls=(ToolFragment(0, arguments="}"),)))


def test_the_whole_response_is_kept_by_the_presenter() -> None:
    speaker = presenter()
    choice = speaker.new_choice()
    choice.add(HELLO)
    body = speaker.body([choice], USAGE)
    assert speaker.final is body
    assert json.loads(msgspec.json.encode(body))["output"][0]["content"][0]["text"] == "Hello"
