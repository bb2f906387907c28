"""What the runtime refuses before it becomes a sequence."""

import pytest

from runtime.admission import choices_to_answer, find_fault
from runtime.messages import Sampling, Submit
from tests.engine_harness import VOCAB_SIZE, make_info, make_submit

INFO = make_info(num_pages=64, max_model_len=100)


def fault_of(request: Submit) -> str | None:
    return find_fault(request, INFO, max_model_len=100)


def test_the_longest_prompt_that_leaves_a_token_is_taken() -> None:
    assert fault_of(make_submit("a", [1] * 99)) is None
    assert fault_of(make_submit("a", [1] * 60, output_prefix=[1] * 39)) is None


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
        (make_submit("a", [1], max_tokens=0), "max_tokens"),
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
    ],
)
def test_what_could_break_a_step_is_named(request_: Submit, word: str) -> None:
    fault = fault_of(request_)
    assert fault is not None
    assert word in fault


@pytest.mark.parametrize(("num_choices", "answers"), [(-3, 1), (0, 1), (4, 4), (10**9, 128)])
def test_refused_choices_are_answered_within_bounds(num_choices: int, answers: int) -> None:
    assert len(choices_to_answer(make_submit("a", [1], num_choices=num_choices))) == answers
