"""The wire shape of answers: whole, and in chunks."""

import json
from typing import Any

import msgspec
import pytest

from gateway.generation import ChoiceFinished, LogprobEntry, TextDelta, Usage
from gateway.schemas.answer import AnswerHead, ChoiceResult, Presenter
from gateway.schemas.chat_response import ChatPresenter
from gateway.schemas.completion_response import CompletionPresenter, OffsetCounter
from tests.sse_machine import check_chat_stream, check_completion_stream

USAGE = Usage(prompt_tokens=7, completion_tokens=3, cached_tokens=5)


def head(**changes: Any) -> AnswerHead:
    fields: dict[str, Any] = {
        "id": "chatcmpl-1",
        "created": 1,
        "model": 'm"\n',
        "system_fingerprint": "fp_1",
        "num_choices": 1,
    }
    return AnswerHead(**{**fields, **changes})


def stream(presenter: Presenter, *deltas: TextDelta, num_choices: int = 1) -> bytes:
    frames = [presenter.opening(), *map(presenter.delta, deltas)]
    frames += [presenter.finish(ChoiceFinished(i, "stop")) for i in range(num_choices)]
    return b"".join([*frames, presenter.closing(USAGE)])


def body(presenter: Presenter, *choices: ChoiceResult) -> Any:
    return json.loads(msgspec.json.encode(presenter.body(list(choices), USAGE)))


def entry(raw: bytes, logprob: float = -0.5, top: tuple[LogprobEntry, ...] = ()) -> LogprobEntry:
    return LogprobEntry(raw.decode("utf-8", "replace"), raw, logprob, top)


@pytest.mark.parametrize("text", ['say "hi"', "line\nbreak", "\u2028 \x00 \U0001f30d", "</script>"])
def test_any_text_survives_a_chunk(text: str) -> None:
    answer = check_chat_stream(stream(ChatPresenter(head()), TextDelta(0, text)))
    assert answer.texts == [text]
    assert answer.head["model"] == 'm"\n'


def test_delta_without_text_or_logprobs_is_not_sent() -> None:
    assert ChatPresenter(head()).delta(TextDelta(0, "", num_tokens=1)) == b""
    assert CompletionPresenter(head()).delta(TextDelta(0, "", num_tokens=1)) == b""


def test_logprobs_without_text_are_sent() -> None:
    presenter = ChatPresenter(head(has_logprobs=True))
    delta = TextDelta(0, "", logprobs=(entry(b"\xc3"),), num_tokens=1)
    answer = check_chat_stream(stream(presenter, delta))
    assert answer.logprobs[0][0]["bytes"] == [0xC3]


def test_chunks_carry_null_usage_only_when_usage_is_wanted() -> None:
    presenter = ChatPresenter(head(num_choices=2, includes_usage=True))
    raw = stream(presenter, TextDelta(1, "a"), TextDelta(0, "b"), num_choices=2)
    answer = check_chat_stream(raw, num_choices=2, includes_usage=True)
    assert answer.texts == ["b", "a"]
    assert answer.usage is not None
    assert answer.usage["total_tokens"] == 10
    assert answer.usage["prompt_tokens_details"]["cached_tokens"] == 5
    assert answer.usage["completion_tokens_details"]["reasoning_tokens"] == 0


@pytest.mark.parametrize("presenter_type", [ChatPresenter, CompletionPresenter])
def test_silence_is_a_chunk_that_says_nothing(presenter_type: Any) -> None:
    presenter = presenter_type(head())
    raw = b"".join(
        (
            presenter.opening(),
            presenter.silence(),
            presenter.delta(TextDelta(0, "x")),
            presenter.finish(ChoiceFinished(0, "stop")),
            presenter.closing(USAGE),
        )
    )
    check = check_chat_stream if presenter_type is ChatPresenter else check_completion_stream
    assert check(raw).texts == ["x"]


def test_whole_chat_has_the_keys_that_must_be_there() -> None:
    answer = body(ChatPresenter(head()), ChoiceResult(texts=["a", "b"]))
    (choice,) = answer["choices"]
    assert choice == {
        "index": 0,
        "message": {"role": "assistant", "content": "ab", "refusal": None},
        "logprobs": None,
        "finish_reason": "stop",
    }
    assert "tool_calls" not in choice["message"]
    assert "metadata" not in answer


def test_metadata_and_tier_are_echoed() -> None:
    presenter = ChatPresenter(head(metadata={"a": "b"}, service_tier="default"))
    answer = body(presenter, ChoiceResult())
    assert answer["metadata"] == {"a": "b"}
    assert answer["service_tier"] == "default"
    assert b'"service_tier":"default"' in presenter.opening()


def test_legacy_logprobs_have_the_sampled_token_among_the_best() -> None:
    top = (entry(b"x", -0.1), entry(b"y", -0.2))
    choice = ChoiceResult(texts=["a"], logprobs=[entry(b"a", -3.0, top)])
    shown = body(CompletionPresenter(head(has_logprobs=True)), choice)["choices"][0]["logprobs"]
    assert shown == {
        "tokens": ["a"],
        "token_logprobs": [-3.0],
        "top_logprobs": [{"x": -0.1, "y": -0.2, "a": -3.0}],
        "text_offset": [0],
    }


def test_partial_characters_are_named_by_their_bytes() -> None:
    entries = [entry(b"\xc3", top=(entry(b"\xc3"), entry(b"\xc4"))), entry(b"\xa9"), entry(b"!")]
    choice = ChoiceResult(texts=["\u00e9!"], logprobs=entries)
    shown = body(CompletionPresenter(head(has_logprobs=True)), choice)["choices"][0]["logprobs"]
    assert shown["tokens"] == ["bytes:\\xc3", "bytes:\\xa9", "!"]
    assert set(shown["top_logprobs"][0]) == {"bytes:\\xc3", "bytes:\\xc4"}
    assert shown["text_offset"] == [0, 0, 1]


def test_streamed_offsets_go_on_where_the_last_chunk_ended() -> None:
    counter = OffsetCounter()
    assert [counter.advance(raw) for raw in (b"ab", "\u00e9".encode(), b"c")] == [0, 2, 3]
