"""Which tokens are appended without being sampled."""

import json

import pytest

from runtime.finish_rules import ConstraintFailed, Ending, FinishRules
from runtime.jump_forward import JumpForward
from runtime.messages import Sampling
from runtime.request import Sequence
from tests.engine_harness import EOS, make_sequence
from tests.fake_grammar import ScriptMatcher, scripted

RULES = FinishRules(frozenset({EOS}), max_model_len=20)
FREE = [3, 4]


def constrained(
    *allowed: list[int],
    sampling: Sampling | None = None,
    accepting_from: int | None = None,
    first_forbidden: tuple[int, ...] = (),
) -> Sequence:
    script = json.loads(scripted(*allowed, accepting_from=accepting_from).grammar)
    sampling = sampling or Sampling(max_tokens=9)
    sequence = make_sequence([1, 2], sampling=sampling, first_forbidden=first_forbidden)
    sequence.matcher = ScriptMatcher(script["allowed"], script["accepting_from"])
    return sequence


def opened(sequence: Sequence, *, is_on: bool = True) -> list[int]:
    JumpForward(RULES, is_on=is_on).open(sequence)
    return sequence.token_ids[2:]


def followed(sequence: Sequence, token_id: int) -> tuple[list[int], Ending | None]:
    assert RULES.take(sequence, token_id) is None
    ending = JumpForward(RULES, is_on=True).follow(sequence)
    return sequence.token_ids[3:], ending


def test_an_answer_opens_with_what_it_must_begin_with() -> None:
    sequence = constrained([5], [6], FREE)
    assert opened(sequence) == [5, 6]
    assert RULES.take(sequence, 3) == Ending("stop")


def test_switched_off_nothing_is_forced() -> None:
    assert opened(constrained([5], [6], FREE), is_on=False) == []


def test_without_a_constraint_nothing_is_forced() -> None:
    assert opened(make_sequence([1, 2])) == []


def test_who_wants_log_probabilities_gets_every_token_sampled() -> None:
    assert opened(constrained([5], FREE, sampling=Sampling(max_tokens=9, num_logprobs=0))) == []


@pytest.mark.parametrize(("max_tokens", "expected"), [(1, []), (2, [5]), (3, [5, 6])])
def test_an_opening_leaves_a_token_to_be_sampled(max_tokens: int, expected: list[int]) -> None:
    sequence = constrained([5], [6], [7], FREE, sampling=Sampling(max_tokens=max_tokens))
    assert opened(sequence) == expected


def test_the_last_token_of_an_answer_without_a_choice_is_sampled() -> None:
    sequence = constrained([5], [6])
    assert opened(sequence) == [5]
    assert RULES.take(sequence, 6) == Ending("stop")


def test_what_follows_a_token_is_appended_until_there_is_a_choice() -> None:
    assert followed(constrained(FREE, [5], [6], FREE, [7]), 3) == ([5, 6], None)


def test_a_forced_end_of_the_text_stops_the_choice() -> None:
    assert followed(constrained(FREE, [5], [6]), 3) == ([5, 6], Ending("stop"))


def test_forced_tokens_stay_within_max_tokens() -> None:
    sequence = constrained(FREE, [5], [6], FREE, sampling=Sampling(max_tokens=2))
    assert followed(sequence, 3) == ([5], Ending("length"))


def test_forced_tokens_stay_within_the_context() -> None:
    script = [FREE, *([5] for _ in range(30)), FREE]
    sequence = constrained(*script, sampling=Sampling(max_tokens=99))
    assert followed(sequence, 3) == ([5] * 17, Ending("length"))
    assert len(sequence.token_ids) == RULES.max_model_len


@pytest.mark.parametrize("stop", [EOS, 6])
def test_a_token_that_could_stop_the_choice_is_left_to_the_sampler(stop: int) -> None:
    sampling = Sampling(max_tokens=9, stop_token_ids=(6,))
    assert followed(constrained(FREE, [5], [stop], [7], sampling=sampling), 3) == ([5], None)


def test_nothing_is_forced_where_the_answer_may_end() -> None:
    assert followed(constrained(FREE, [5], [6], accepting_from=2), 3) == ([5], None)


def test_a_forced_first_token_that_may_not_come_first_fails_the_choice() -> None:
    with pytest.raises(ConstraintFailed, match="token 5"):
        opened(constrained([5], FREE, first_forbidden=(5,)))


def test_what_may_not_come_first_may_be_forced_later() -> None:
    assert opened(constrained([5], [6], FREE, first_forbidden=(6,))) == [5, 6]
    assert followed(constrained(FREE, [5], FREE, first_forbidden=(5,)), 3) == ([5], None)


class RefusingMatcher(ScriptMatcher):
    """Names a forced token that it then does not accept."""

    def forced_tokens(self) -> list[int]:
        return [*super().forced_tokens(), 90]


def test_only_what_the_matcher_accepts_is_appended() -> None:
    sequence = constrained([5], FREE)
    sequence.matcher = RefusingMatcher([[5], FREE], 2)
    assert opened(sequence) == [5]
    assert RULES.take(sequence, 4) == Ending("stop")


def test_who_wants_no_token_gets_none_forced() -> None:
    assert opened(constrained([5], [6], FREE, sampling=Sampling(max_tokens=0))) == []


def test_a_token_that_the_client_does_not_allow_is_left_to_the_sampler() -> None:
    sampling = Sampling(max_tokens=9, allowed_token_ids=(3, 5, 7))
    assert opened(constrained([5], [6], [7], FREE, sampling=sampling)) == [5]
    assert followed(constrained(FREE, [5], [7], [6], FREE, sampling=sampling), 3) == ([5, 7], None)


def test_a_word_that_a_grammar_forces_is_no_bad_word() -> None:
    sampling = Sampling(max_tokens=9, bad_words=((6,), (5, 6)))
    assert opened(constrained([5], [6], FREE, sampling=sampling)) == [5, 6]
