"""What a client allows and forbids holds for every token of an answer, and for no other request."""

from typing import Any

import pytest

from runtime.batch import SampleRow
from runtime.messages import ErrorCode, Sampling, Submit
from tests.engine_harness import EOS, VOCAB_SIZE, EngineHarness, alone, make_submit
from tests.fake_executor import History
from tests.fake_grammar import scripted
from tests.grammar_harness import MakeHarness

PROMPT = [40, 41, 1, 2]
CYCLE = [1, 2, 3, 1, 2, 4]


def cycle(_history: History, row: SampleRow) -> int:
    """The favourite token is up to the place in the answer alone."""
    return CYCLE[row.position % len(CYCLE)]


def limited(
    request_id: str = "a",
    *,
    max_tokens: int = 12,
    output_prefix: list[int] | None = None,
    **limits: Any,
) -> Submit:
    return make_submit(
        request_id,
        PROMPT,
        sampling=Sampling(max_tokens=max_tokens, **limits),
        output_prefix=output_prefix or [],
    )


@pytest.fixture
def cycling() -> EngineHarness:
    return EngineHarness(choose=cycle)


def test_only_allowed_tokens_come_and_the_end_only_if_it_is_among_them() -> None:
    harness = EngineHarness(choose=lambda _history, _row: EOS - 1)
    open_end = harness.ask(limited("open", allowed_token_ids=(7, 3)))
    assert (open_end.token_ids, open_end.finish_reason) == ([3] * 12, "length")
    ended = harness.ask(limited("ended", allowed_token_ids=(3, EOS)))
    assert (ended.token_ids, ended.finish_reason) == ([EOS], "stop")
    assert ended.last.stop_token_id == EOS


def test_an_end_that_is_allowed_waits_for_min_tokens() -> None:
    harness = EngineHarness(choose=lambda _history, _row: EOS)
    answer = harness.ask(limited(allowed_token_ids=(3, EOS), min_tokens=2))
    assert answer.token_ids == [3, 3, EOS]


def test_without_limits_the_cycle_is_answered(cycling: EngineHarness) -> None:
    assert cycling.ask(limited()).token_ids == CYCLE * 2


def test_a_bad_word_of_one_token_never_comes_and_others_stay(cycling: EngineHarness) -> None:
    assert cycling.ask(limited(bad_words=((2,),))).token_ids == [1, 3, 3, 1, 3, 4] * 2


def test_of_a_longer_bad_word_the_last_token_is_avoided(cycling: EngineHarness) -> None:
    answer = cycling.ask(limited(bad_words=((1, 2, 3), (4, 1, 2))))
    assert answer.token_ids == [1, 2, 4, 1, 3, 4, 1, 3, 3, 1, 2, 4]


def test_the_prompt_is_no_part_of_a_bad_word_and_what_an_answer_goes_on_from_is(
    cycling: EngineHarness,
) -> None:
    words = ((2, 1), (1, 2, 3))
    assert cycling.ask(limited("new", max_tokens=1, bad_words=words)).token_ids == [1]
    rest = limited("rest", max_tokens=1, bad_words=words, output_prefix=[1, 2])
    assert cycling.ask(rest).token_ids == [4]


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"allowed_token_ids": (5,), "bad_words": ((5,),)}, "allowed_token_ids and bad_words"),
        ({"allowed_token_ids": (EOS,), "ignore_eos": True}, "allowed_token_ids and ignore_eos"),
        ({"bad_words": tuple((one,) for one in range(VOCAB_SIZE))}, "bad_words"),
    ],
)
def test_limits_that_leave_no_token_are_an_error_of_that_choice_alone(
    limits: dict[str, Any], words: str, cycling: EngineHarness
) -> None:
    cycling.submit(limited("beside"))
    cycling.submit(limited("a", **limits))
    cycling.run()
    answer = cycling.answer("a")
    assert (answer.error_code, answer.token_ids) == (ErrorCode.NO_TOKEN_LEFT, [])
    assert answer.last.error is not None
    assert answer.last.error.message == f"{words} leave no token to sample"
    assert cycling.answer("beside").token_ids == CYCLE * 2
    cycling.assert_idle()


@pytest.mark.parametrize(
    "limits",
    [
        {"allowed_token_ids": ()},
        {"allowed_token_ids": (VOCAB_SIZE,)},
        {"allowed_token_ids": (-1,)},
        {"bad_words": ((1, VOCAB_SIZE),)},
        {"bad_words": ((2**40,),)},
        {"bad_words": ((),)},
        {"logit_bias": {VOCAB_SIZE: 1.0}},
        {"stop_token_ids": (-(2**40),)},
    ],
)
def test_ids_outside_of_the_vocabulary_are_refused_and_harm_nobody(
    limits: dict[str, Any], cycling: EngineHarness
) -> None:
    cycling.submit(limited("beside"))
    cycling.step()
    answer = cycling.ask(limited("a", **limits))
    assert answer.error_code is ErrorCode.INVALID_REQUEST
    assert cycling.answer("beside").token_ids == CYCLE * 2
    cycling.assert_idle()


def test_answers_beside_limited_ones_are_what_they_are_alone(harness: EngineHarness) -> None:
    requests = [
        make_submit("plain", PROMPT, max_tokens=20),
        limited("few", allowed_token_ids=tuple(range(10, 20)), max_tokens=20),
        limited("none", bad_words=((1,), (2, 3)), ignore_eos=True, max_tokens=20),
        make_submit("again", PROMPT, max_tokens=20, num_choices=2),
    ]
    for request in requests:
        harness.submit(request)
    harness.run()
    for request in requests:
        for choice in range(request.num_choices):
            assert harness.answer(request.request_id, choice).token_ids == alone(request, choice)
    assert set(harness.answer("few").token_ids) <= set(range(10, 20))


@pytest.mark.parametrize("jump_forward", [True, False])
def test_a_grammar_chooses_among_what_is_allowed(
    make_grammar_harness: MakeHarness, jump_forward: bool
) -> None:
    harness = make_grammar_harness(jump_forward=jump_forward)
    sampling = Sampling(max_tokens=9, allowed_token_ids=(4, 13, 7))
    script = scripted([13], [3, 4, 5], [4, 6])
    answer = harness.ask(make_submit("a", PROMPT, sampling=sampling, constraint=script))
    assert (answer.token_ids, answer.finish_reason) == ([13, 4, 4], "stop")


@pytest.mark.parametrize("jump_forward", [True, False])
@pytest.mark.parametrize("script", [([3], [4]), ([4], [3, 5]), ([4, 5], [3], [4])])
def test_a_grammar_that_leaves_nothing_of_what_is_allowed_is_an_error(
    make_grammar_harness: MakeHarness, script: tuple[list[int], ...], jump_forward: bool
) -> None:
    harness = make_grammar_harness(jump_forward=jump_forward)
    sampling = Sampling(max_tokens=9, allowed_token_ids=(4, 13))
    answer = harness.ask(
        make_submit("a", PROMPT, sampling=sampling, constraint=scripted(*script), num_choices=2)
    )
    assert answer.error_code is ErrorCode.NO_TOKEN_LEFT
    assert answer.last.error is not None
    assert answer.last.error.message == (
        "the constraint and allowed_token_ids leave no token to sample"
    )
    assert set(answer.token_ids) <= {4}
    harness.assert_idle()
