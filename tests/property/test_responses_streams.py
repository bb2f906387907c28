"""Whatever a model says in whatever pieces, the stream of a response is legal, and its end is the
response that is given without a stream."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.generation import ChoiceFinished, FinishReason, LogprobEntry, TextDelta, Usage
from gateway.schemas.answer import AnswerHead
from gateway.schemas.responses_presenter import ResponsesPresenter
from gateway.schemas.responses_request import ResponsesRequest
from gateway.schemas.responses_response import begun_response
from gateway.tools.calls import ToolFragment
from tests.responses_machine import check_ended, check_responses_stream

HEAD = AnswerHead("resp_0a", created=1, model="m", system_fingerprint="fp", num_choices=1)
USAGE = Usage(prompt_tokens=7, completion_tokens=9, cached_tokens=5, reasoning_tokens=2)

texts = st.text(st.sampled_from('ab"\\\n\u2028é😀'), max_size=4)
entries = st.lists(
    st.builds(LogprobEntry, texts, raw=st.just(b"x"), logprob=st.just(-0.5)), max_size=2
)
# What the parser tells of: text, thoughts, the beginning of a call, more of it.
steps = st.lists(
    st.tuples(st.sampled_from(["text", "think", "begin", "more", "nothing"]), texts, entries),
    max_size=12,
)


def deltas_of(
    plan: Sequence[tuple[str, str, list[LogprobEntry]]], joined: Sequence[int]
) -> list[TextDelta]:
    """The steps as deltas; with the following one where their kinds come in a delta's order."""
    deltas: list[TextDelta] = []
    num_calls, is_in_call = 0, False
    for kind, text, logprobs in plan:
        match kind:
            case "text":
                delta = TextDelta(0, text, logprobs=tuple(logprobs))
                is_in_call = is_in_call and not text
            case "think":
                delta = TextDelta(0, "", reasoning=text)
                is_in_call = is_in_call and not text
            case "begin":
                fragment = ToolFragment(num_calls, f"call_{num_calls}", f"tool_{num_calls}")
                delta = TextDelta(
                    0, "", tool_calls=(fragment, ToolFragment(num_calls, arguments=text))
                )
                num_calls, is_in_call = num_calls + 1, True
            case "more" if is_in_call:
                delta = TextDelta(0, "", tool_calls=(ToolFragment(num_calls - 1, arguments=text),))
            case _:
                delta = TextDelta(0, "", num_tokens=1)
        deltas.append(delta)
    return _joined(deltas, joined)


def _joined(deltas: list[TextDelta], places: Sequence[int]) -> list[TextDelta]:
    """Some neighbours as one delta, in which thoughts come first and calls last."""
    result: list[TextDelta] = []
    for index, delta in enumerate(deltas):
        last = result[-1] if result else None
        fits = last is not None and not last.tool_calls and not (last.text and delta.reasoning)
        if last is None or not fits or index not in places:
            result.append(delta)
            continue
        result[-1] = TextDelta(
            0,
            last.text + delta.text,
            logprobs=last.logprobs + delta.logprobs,
            reasoning=last.reasoning + delta.reasoning,
            tool_calls=delta.tool_calls,
        )
    return result


def presenter() -> ResponsesPresenter:
    request = ResponsesRequest.model_validate({"model": "m", "input": "hi"})
    return ResponsesPresenter(begun_response(HEAD, request, is_kept=True), clock=lambda: 2.0)


def streamed(deltas: Sequence[TextDelta], reason: FinishReason) -> bytes:
    speaker = presenter()
    frames = [speaker.opening(), *map(speaker.delta, deltas)]
    frames += [speaker.finish(ChoiceFinished(0, reason)), speaker.closing(USAGE)]
    return b"".join(frames)


def whole(deltas: Sequence[TextDelta], reason: FinishReason) -> Any:
    speaker = presenter()
    choice = speaker.new_choice()
    for delta in deltas:
        choice.add(delta)
    choice.finish_reason = reason
    return json.loads(msgspec.json.encode(speaker.body([choice], USAGE)))


@settings(derandomize=True, max_examples=300, deadline=None)
@given(steps, st.sets(st.integers(1, 11)), st.sampled_from(["stop", "length", "tool_calls"]))
def test_any_interleaving_is_a_legal_stream_of_the_whole_response(
    plan: list[tuple[str, str, list[LogprobEntry]]], joined: set[int], reason: FinishReason
) -> None:
    deltas = deltas_of(plan, sorted(joined))
    answer = check_responses_stream(streamed(deltas, reason))
    response = whole(deltas, reason)
    check_ended(response)
    assert answer.response == response
    said = {
        "message": "".join(delta.text for delta in deltas),
        "reasoning": "".join(delta.reasoning for delta in deltas),
        "function_call": "".join(f.arguments for delta in deltas for f in delta.tool_calls),
    }
    for kind, text in said.items():
        pairs = zip(response["output"], answer.texts, strict=True)
        assert "".join(told for item, told in pairs if item["type"] == kind) == text
