"""Which gaps count as before a long prompt and which as during it."""

import json

import pytest

from telemetry.answer_stream import RecordedStream, StreamError
from tests.bench.stall import evaluate, gaps_within

MS = 1_000_000


def event(data: object) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


WORD = event({"choices": [{"index": 0, "delta": {"content": "word"}}]})
USAGE = event({"choices": [], "usage": {"prompt_tokens": 4000, "completion_tokens": 1}})


def stream(*arrivals_ms: int) -> RecordedStream:
    return RecordedStream(0, 200, [(at_ms * MS, WORD) for at_ms in arrivals_ms])


def long_prompt(sent_ms: int, first_ms: int) -> RecordedStream:
    end = USAGE + b"data: [DONE]\n\n"
    return RecordedStream(sent_ms * MS, 200, [(first_ms * MS, WORD + end)])


@pytest.mark.parametrize(
    ("start_ms", "end_ms", "gaps"),
    [(0, 25, [10, 20]), (10, 30, [20]), (30, 90, [60]), (50, 60, [60]), (95, 99, [])],
)
def test_a_gap_counts_wherever_it_overlaps(start_ms: int, end_ms: int, gaps: list[float]) -> None:
    arrivals_ns = [at_ms * MS for at_ms in (0, 10, 30, 90)]
    assert gaps_within(arrivals_ns, start_ms * MS, end_ms * MS) == gaps


def test_the_ratio_is_of_what_readers_waited_during_and_before() -> None:
    steady = stream(0, 10, 20, 30, 40, 50, 60, 70, 80)
    stalled = stream(0, 10, 20, 30, 55, 80)
    found = evaluate([steady, stalled], long_prompt(30, 70), before_ns=0)
    assert (found.before_p99_ms, found.during_p99_ms, found.ratio) == (10, 25, 2.5)
    assert (found.num_gaps_before, found.num_gaps_during) == (6, 6)
    assert (found.prompt_tokens, found.prompt_ttft_ms) == (4000, 40)


def test_streams_that_ended_before_the_prompt_was_computed_measure_nothing() -> None:
    with pytest.raises(StreamError, match="a stream ended"):
        evaluate([stream(0, 10, 40)], long_prompt(30, 70), before_ns=0)
