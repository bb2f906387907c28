"""When a choice ends and what it may not sample."""

import json

import pytest

from runtime.finish_rules import ConstraintFailed, Ending, FinishRules, NoTokenLeft
from runtime.messages import Sampling
from runtime.request import Sequence
from tests.engine_harness import EOS, make_sequence
from tests.fake_grammar import ScriptMatcher, scripted

RULES = FinishRules(frozenset({EOS, 95}), max_model_len=10)
STOP = 42


def unconstrained(sampling: Sampling, *, output: tuple[int, ...] = ()) -> Sequence:
    sequence = make_sequence([1, 2, 3], sampling=sampling)
    sequence.token_ids += output
    return sequence


def constrained(*allowed: list[int], accepting_from: int | None = None) -> Sequence:
    spec = scripted(*allowed, accepting_from=accepting_from)
    sampling = Sampling(max_tokens=5, min_tokens=5, ignore_eos=True, stop_token_ids=(STOP,))
    sequence = make_sequence([1], sampling=sampling, constraint=spec)
    script = json.loads(spec.grammar)
    sequence.matcher = ScriptMatcher(script["allowed"], script["accepting_from"])
    return sequence


@pytest.mark.parametrize("eos", [EOS, 95])
def test_each_end_of_sequence_id_stops_and_is_named(eos: int) -> None:
    sequence = unconstrained(Sampling(max_tokens=5))
    assert RULES.take(sequence, eos) == Ending("stop", stop_token_id=eos)
    assert sequence.usage().completion_tokens == 1


def test_an_ordinary_token_goes_on() -> None:
    sequence = unconstrained(Sampling(max_tokens=5))
    assert RULES.take(sequence, 7) is None
    assert sequence.token_ids == [1, 2, 3, 7]


def test_the_last_allowed_token_ends_by_length() -> None:
    sequence = unconstrained(Sampling(max_tokens=2), output=(7,))
    assert RULES.take(sequence, 7) == Ending("length")


def test_stop_wins_over_length_on_the_same_token() -> None:
    sequence = unconstrained(Sampling(max_tokens=1))
    assert RULES.take(sequence, EOS) == Ending("stop", stop_token_id=EOS)


def test_a_full_context_ends_by_length() -> None:
    sequence = unconstrained(Sampling(max_tokens=99), output=(7,) * 6)
    assert RULES.take(sequence, 7) == Ending("length")


def test_a_stop_token_id_stops() -> None:
    sequence = unconstrained(Sampling(max_tokens=5, stop_token_ids=(STOP,)))
    assert RULES.take(sequence, STOP) == Ending("stop", stop_token_id=STOP)


def test_nothing_that_stops_may_be_sampled_before_min_tokens() -> None:
    sampling = Sampling(max_tokens=5, min_tokens=2, stop_token_ids=(STOP,))
    assert RULES.forbidden_ids(unconstrained(sampling, output=(7,))) == (STOP, 95, EOS)
    assert RULES.forbidden_ids(unconstrained(sampling, output=(7, 7))) == ()


def test_ignore_eos_forbids_the_end_for_ever_but_not_stop_tokens() -> None:
    sampling = Sampling(max_tokens=50, ignore_eos=True, stop_token_ids=(STOP,))
    assert RULES.forbidden_ids(unconstrained(sampling, output=(7,) * 5)) == (95, EOS)


def test_a_constraint_ends_in_spite_of_ignore_eos_and_min_tokens() -> None:
    sequence = constrained([1], [2], accepting_from=1)
    assert RULES.take(sequence, 1) is None
    assert RULES.take(sequence, EOS) == Ending("stop", stop_token_id=EOS)


def test_a_matcher_with_nothing_left_ends_without_a_stop_token() -> None:
    sequence = constrained([1], [2])
    assert RULES.take(sequence, 1) is None
    assert RULES.take(sequence, 2) == Ending("stop")


def test_a_stop_token_inside_a_grammar_is_text() -> None:
    sequence = constrained([STOP], [2], accepting_from=1)
    assert RULES.take(sequence, STOP) is None


def test_a_stop_token_ends_where_the_grammar_may_end() -> None:
    sequence = constrained([1], [STOP], [3], accepting_from=1)
    RULES.take(sequence, 1)
    assert RULES.take(sequence, STOP) == Ending("stop", stop_token_id=STOP)


def test_a_token_outside_of_the_grammar_is_never_appended() -> None:
    sequence = constrained([1], [2])
    with pytest.raises(ConstraintFailed, match="token 9"):
        RULES.take(sequence, 9)
    assert sequence.token_ids == [1]


def test_what_would_complete_a_bad_word_is_forbidden_behind_the_answer_so_far() -> None:
    """The prompt ends with 2, 3, which begins no word."""
    sampling = Sampling(max_tokens=9, bad_words=((8,), (2, 3, 4), (7, 6), (3, 9)))
    assert RULES.forbidden_ids(unconstrained(sampling)) == (8,)
    assert RULES.forbidden_ids(unconstrained(sampling, output=(7,))) == (6, 8)
    assert RULES.forbidden_ids(unconstrained(sampling, output=(2, 3))) == (4, 8, 9)


def test_a_bad_word_may_begin_in_what_an_answer_goes_on_from() -> None:
    sampling = Sampling(max_tokens=9, bad_words=((7, 6),))
    sequence = make_sequence([1], sampling=sampling, output_prefix=[7])
    assert RULES.forbidden_ids(sequence) == (6,)


def test_bad_words_are_forbidden_beside_an_early_end() -> None:
    sampling = Sampling(max_tokens=9, bad_words=((8,), (95,)), min_tokens=1)
    assert RULES.forbidden_ids(unconstrained(sampling)) == (8, 95, EOS)


def test_the_error_of_a_choice_without_a_token_names_what_it_asked_for() -> None:
    sampling = Sampling(max_tokens=9, allowed_token_ids=(1,), bad_words=((1,),))
    error = RULES.nothing_left(unconstrained(sampling))
    assert str(error) == "allowed_token_ids and bad_words leave no token to sample"
    assert str(RULES.nothing_left(constrained([1]))).startswith("the constraint and min_tokens and")
    assert "scores of the model" in str(RULES.nothing_left(unconstrained(Sampling(max_tokens=1))))


def test_only_what_the_request_forbids_is_its_own_fault() -> None:
    limited = Sampling(max_tokens=9, allowed_token_ids=(1,))
    assert isinstance(RULES.nothing_left(unconstrained(limited)), NoTokenLeft)
    assert isinstance(
        RULES.nothing_left(unconstrained(Sampling(max_tokens=9, ignore_eos=True))), NoTokenLeft
    )
    assert not isinstance(RULES.nothing_left(unconstrained(Sampling(max_tokens=9))), NoTokenLeft)
    assert not isinstance(RULES.nothing_left(constrained([1])), NoTokenLeft)
