"""What the runtime refuses before it becomes a sequence."""

import datetime
import math
import time
from typing import Any

import msgspec
import pytest

from runtime.admission import MAX_PROMPT_LOGPROBS, choices_to_answer, find_fault
from runtime.messages import MAX_PIN_S, CacheHints, Pin, Sampling, Submit
from tests.engine_harness import VOCAB_SIZE, make_info, make_submit

INFO = make_info(num_pages=64, max_model_len=100)


def limited(**limits: Any) -> Submit:
    return make_submit("a", [1], sampling=Sampling(max_tokens=1, **limits))


def pinned(*pins: Pin) -> Submit:
    return make_submit("a", [1], cache=CacheHints(pins=pins))


def fault_of(request: Submit) -> str | None:
    return find_fault(request, INFO, max_model_len=100)


def test_the_longest_prompt_that_leaves_a_token_is_taken() -> None:
    assert fault_of(make_submit("a", [1] * 99)) is None
    assert fault_of(make_submit("a", [1] * 60, output_prefix=[1] * 39)) is None


def test_a_prompt_behind_which_nothing_is_wanted_may_fill_the_context() -> None:
    assert fault_of(make_submit("a", [1] * 100, max_tokens=0)) is None
    assert fault_of(make_submit("a", [1] * 60, max_tokens=0, output_prefix=[1] * 40)) is None


def test_best_tokens_of_a_prompt_are_bounded_all_together() -> None:
    info = make_info(num_pages=9_000, max_model_len=100_000)

    def fault(num_best: int) -> str | None:
        request = make_submit("a", [1] * 50_000, num_prompt_logprobs=num_best)
        return find_fault(request, info, max_model_len=100_000)

    assert fault(MAX_PROMPT_LOGPROBS // 50_000) is None
    assert "at most 20" in (fault(21) or "")


def test_limits_on_tokens_that_mean_something_are_taken() -> None:
    taken = limited(allowed_token_ids=(0, VOCAB_SIZE - 1), bad_words=((0,), (VOCAB_SIZE - 1, 3)))
    assert fault_of(taken) is None
    assert fault_of(make_submit("a", [1, 2], num_prompt_logprobs=0)) is None


def test_the_end_of_the_longest_pin_is_a_date_that_fits_in_a_message() -> None:
    assert fault_of(pinned(Pin(1, MAX_PIN_S))) is None
    end_ns = time.time_ns() + round(MAX_PIN_S * 1e9)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(end_ns)) == end_ns
    assert datetime.datetime.fromtimestamp(end_ns / 1e9, datetime.UTC).year < 9999


@pytest.mark.parametrize(
    ("request_", "word"),
    [
        (make_submit("a", []), "empty"),
        (make_submit("a", [1] * 100), "at most 99"),
        (make_submit("a", [VOCAB_SIZE]), "prompt_token_ids"),
        (make_submit("a", [3, -1]), "prompt_token_ids"),
        (make_submit("a", [1] * 60, output_prefix=[1] * 40), "output_prefix have 100 tokens"),
        (make_submit("a", [1], output_prefix=[VOCAB_SIZE]), "output_prefix"),
        (make_submit("a", [1], first_forbidden=(-1,)), "first_forbidden"),
        (make_submit("a", [1], num_choices=0), "num_choices"),
        (make_submit("a", [1], num_choices=1_000_000), "num_choices"),
        (make_submit("a", [1], max_tokens=-1), "max_tokens"),
        (make_submit("a", [1] * 101, max_tokens=0), "at most 100"),
        (make_submit("a", [1] * 60, max_tokens=0, output_prefix=[1] * 41), "101 tokens"),
        (
            make_submit("a", [1], sampling=Sampling(max_tokens=1, stop_token_ids=(VOCAB_SIZE,))),
            "stop_token_ids",
        ),
        (
            make_submit("a", [1], sampling=Sampling(max_tokens=1, logit_bias={-2: 1.0})),
            "logit_bias",
        ),
        (make_submit("a", [1], sampling=Sampling(max_tokens=1, num_logprobs=98)), "num_logprobs"),
        (make_submit("a", [1], sampling=Sampling(max_tokens=1, num_logprobs=-1)), "num_logprobs"),
        (make_submit("a", [1], num_prompt_logprobs=-1), "num_prompt_logprobs"),
        (make_submit("a", [1], num_prompt_logprobs=98), "num_prompt_logprobs"),
        (limited(allowed_token_ids=()), "allowed_token_ids is empty"),
        (limited(allowed_token_ids=(3, VOCAB_SIZE)), "allowed_token_ids"),
        (limited(allowed_token_ids=(-1,)), "allowed_token_ids"),
        (limited(bad_words=((3,), ())), "empty sequence"),
        (limited(bad_words=((3, VOCAB_SIZE),)), "bad_words"),
        (limited(bad_words=((3,), (-7, 1))), "bad_words"),
        (limited(bad_words=((1,) * 40_000, (2,) * 40_000)), "80000 tokens"),
        (pinned(Pin(-1, 1.0)), "a pin has"),
        (pinned(Pin(1, -1.0)), "a pin has"),
        (pinned(Pin(1, math.nan)), "a pin has"),
        (pinned(Pin(1, 1e13)), "a pin has"),
        (pinned(*[Pin(1, 1.0)] * 17), "17 pins"),
        (make_submit("a", [1], cache=CacheHints(keep_len=-1)), "keep_len"),
        (make_submit("a", [1], cache=CacheHints(quota_bytes=-1)), "quota_bytes"),
    ],
)
def test_what_could_break_a_step_is_named(request_: Submit, word: str) -> None:
    fault = fault_of(request_)
    assert fault is not None
    assert word in fault


@pytest.mark.parametrize(("num_choices", "answers"), [(-3, 1), (0, 1), (4, 4), (10**9, 128)])
def test_refused_choices_are_answered_within_bounds(num_choices: int, answers: int) -> None:
    assert len(choices_to_answer(make_submit("a", [1], num_choices=num_choices))) == answers
