"""What a load of conversations came to, from turns that were made up."""

from dataclasses import replace

import pytest

from telemetry.answer_stream import Answer
from telemetry.load import RequestTiming
from telemetry.load_report import PlayedTurn, make_report, turn_json

TIMING = RequestTiming(ttft_s=0.1, stream_s=0.4, itl_s=(0.1, 0.3), output_tokens=3)


def answered(
    *, start_ns: int, prompt: tuple[int, ...], output: tuple[int, ...], cached: int | None
) -> PlayedTurn:
    answer = Answer("text", TIMING, len(prompt), len(output), cached, prompt, output)
    return PlayedTurn(0, 0, start_ns, start_ns + 5, answer)


FIRST = answered(start_ns=0, prompt=(1, 2, 3), output=(4, 5), cached=0)
SECOND = answered(start_ns=10, prompt=(1, 2, 3, 4, 5, 6), output=(7,), cached=4)
FAILED = PlayedTurn(1, 2, 20, 30, None, "status 500")


def test_shares_are_over_all_answered_requests() -> None:
    report = make_report([FIRST, SECOND], wall_s=2.0, num_unsent=0)
    assert (report.prompt_tokens, report.output_tokens, report.cached_tokens) == (9, 3, 4)
    assert report.hit_rate == pytest.approx(4 / 9)
    assert (report.cacheable_tokens, report.used_share) == (5, 0.8)
    assert report.summary.output_tok_s == 3.0


def test_failures_are_counted_and_the_first_is_kept() -> None:
    report = make_report([FIRST, FAILED], wall_s=1.0, num_unsent=7)
    assert (report.num_requests, report.num_failed, report.num_unsent) == (2, 1, 7)
    assert report.first_failure == "status 500"
    assert "1 failed, 7 not sent" in report.lines()[0]


def test_what_was_cached_before_the_load_does_not_make_up_for_what_was_missed() -> None:
    warm = replace(FIRST, answer=replace(_answer(FIRST), cached_tokens=2))
    report = make_report([warm, SECOND], wall_s=1.0, num_unsent=0)
    assert report.cached_tokens == 6
    assert report.used_share == 0.8


def test_a_server_that_does_not_tell_is_not_taken_for_one_that_caches_nothing() -> None:
    silent = answered(start_ns=0, prompt=(1, 2), output=(3,), cached=None)
    without_ids = replace(silent, answer=replace(_answer(silent), prompt_ids=None))
    report = make_report([without_ids], wall_s=1.0, num_unsent=0)
    assert (report.hit_rate, report.used_share, report.cacheable_tokens) == (None, None, None)
    text = "\n".join(report.lines())
    assert "the server does not say" in text
    assert "does not tell token ids" in text


def test_an_empty_load_has_lines_all_the_same() -> None:
    report = make_report([], wall_s=1.0, num_unsent=3)
    assert "no request has one" in "\n".join(report.lines())
    assert report.as_json()["hit_rate"] is None


def test_one_turn_as_json_has_its_times_and_neither_text_nor_ids() -> None:
    assert turn_json(SECOND) == {
        "user": 0,
        "turn": 0,
        "failure": None,
        "ttft_s": 0.1,
        "tpot_s": 0.2,
        "prompt_tokens": 6,
        "cached_tokens": 4,
        "output_tokens": 1,
    }
    assert turn_json(FAILED)["failure"] == "status 500"


def _answer(turn: PlayedTurn) -> Answer:
    assert turn.answer is not None
    return turn.answer
