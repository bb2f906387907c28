"""Recorded bytes become an answer with times, or a failure that says why."""

import json

import pytest

from telemetry.answer_stream import RecordedStream, StreamError, read_answer, text_arrivals_ns

MS = 1_000_000
USAGE = {
    "prompt_tokens": 9,
    "completion_tokens": 3,
    "prompt_tokens_details": {"cached_tokens": 5},
}


def delta(text: str) -> bytes:
    return event({"choices": [{"index": 0, "delta": {"content": text}}]})


def event(data: object) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


ROLE = event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
END = event({"choices": [], "usage": USAGE}) + b"data: [DONE]\n\n"


def recorded(*pieces: tuple[int, bytes], status: int = 200) -> RecordedStream:
    return RecordedStream(0, status, [(at_ms * MS, data) for at_ms, data in pieces])


def test_an_answer_has_its_text_its_times_and_the_servers_counts() -> None:
    answer = read_answer(recorded((5, ROLE), (20, delta("one ")), (50, delta("two") + END)))
    assert answer.text == "one two"
    assert (answer.prompt_tokens, answer.output_tokens, answer.cached_tokens) == (9, 3, 5)
    assert answer.timing is not None
    assert (answer.timing.ttft_s, answer.timing.stream_s) == (0.02, 0.03)


def test_an_event_arrives_with_the_piece_that_ends_its_line() -> None:
    data = delta("word")
    stream = recorded((10, data[:7]), (30, data[7:]), (40, END))
    timing = read_answer(stream).timing
    assert timing is not None
    assert timing.ttft_s == 0.03


def test_events_in_one_piece_arrive_together() -> None:
    timing = read_answer(recorded((10, delta("a") + delta("b")), (40, delta("c") + END))).timing
    assert timing is not None
    assert timing.itl_s == (0.0, 0.03)


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (recorded((1, delta("half"))), "before its end mark"),
        (recorded((1, delta("a") + b"data: [DONE]\n\n")), "no usage block"),
        (recorded((1, delta("a") + event({"error": {"message": "oh"}}))), "error event.*oh"),
        (recorded((1, b'{"error": "busy"}'), status=503), "status 503.*busy"),
        (recorded((1, b"data: {nonsense\n\n")), "no JSON object"),
        (recorded((1, b"<html>\n<p>Hello"), (2, b"</html>")), "no event stream, but: <html> <p>He"),
        (recorded(), "without events"),
        (RecordedStream(0, failure="ClientError: gone"), "gone"),
    ],
)
def test_what_is_no_whole_answer_is_a_failure(stream: RecordedStream, reason: str) -> None:
    with pytest.raises(StreamError, match=reason):
        read_answer(stream)


def test_a_running_streams_arrivals_can_be_read() -> None:
    stream = recorded((5, ROLE), (20, delta("one ")), (50, delta("two") + delta("thr")[:9]))
    assert text_arrivals_ns(stream) == [20 * MS, 50 * MS]


def test_token_ids_are_kept_where_the_server_tells_them() -> None:
    first = event({"choices": [{"index": 0, "delta": {}}], "prompt_token_ids": [7, 8]})
    second = event({"choices": [{"index": 0, "delta": {"content": "a"}, "token_ids": [3, 4]}]})
    answer = read_answer(recorded((1, first + second + END)))
    assert (answer.prompt_ids, answer.output_ids) == ((7, 8), (3, 4))
    assert read_answer(recorded((1, delta("a") + END))).prompt_ids is None


def test_reasoning_and_calls_have_times_but_no_text() -> None:
    thought = event({"choices": [{"index": 0, "delta": {"reasoning_content": "hm"}}]})
    call = event({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0}]}}]})
    answer = read_answer(recorded((10, thought), (30, call + END)))
    assert answer.text == ""
    assert answer.timing is not None
    assert (answer.timing.ttft_s, answer.timing.itl_s) == (0.01, (0.02,))


def test_a_server_that_does_not_say_what_was_cached_is_not_taken_for_zero() -> None:
    end = event({"choices": [], "usage": {"completion_tokens": 1}}) + b"data: [DONE]\n\n"
    assert read_answer(recorded((1, delta("a") + end))).cached_tokens is None


@pytest.mark.parametrize(
    "strange",
    [
        {"choices": 5},
        {"choices": [5, None, {"delta": 5}, {"delta": {"content": 5}}, {"token_ids": "ab"}]},
        {"choices": {"delta": {}}},
        {"choices": [{"delta": {"content": ["a"]}, "token_ids": [1, "2"]}]},
        {"prompt_token_ids": 7},
        {"prompt_token_ids": [-1]},
        {"prompt_token_ids": [1 << 32]},
        {"choices": [{"delta": {}, "token_ids": [1 << 70]}]},
        {"prompt_token_ids": [[1], {}]},
        {"usage": [1]},
    ],
)
def test_what_has_another_form_than_it_should_is_as_good_as_absent(strange: object) -> None:
    answer = read_answer(recorded((5, event(strange)), (20, delta("one") + END)))
    assert (answer.text, answer.prompt_ids, answer.output_ids) == ("one", None, ())


@pytest.mark.parametrize("count", [-1, 10**30, True, 1.5, "3", None, [3]])
def test_a_count_that_is_none_is_not_taken_for_zero(count: object) -> None:
    details = {"cached_tokens": count}
    usage = {"prompt_tokens": count, "completion_tokens": count, "prompt_tokens_details": details}
    end = event({"choices": [], "usage": usage}) + b"data: [DONE]\n\n"
    stream = recorded((5, delta("one") + delta("two") + end))
    answer = read_answer(stream, needs_usage=False)
    assert (answer.output_tokens, answer.tells_usage, answer.cached_tokens) == (2, False, None)
    with pytest.raises(StreamError, match="no usage block with a number of output tokens"):
        read_answer(stream)


def test_an_event_that_is_nested_without_an_end_is_a_failure() -> None:
    with pytest.raises(StreamError, match="no JSON object"):
        read_answer(recorded((5, b"data: " + b"[" * 200_000 + b"\n\n")))
