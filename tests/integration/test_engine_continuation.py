"""An answer that is gone on with: what was begun earlier is input, and still part of the answer."""

import pytest

from runtime.messages import ErrorCode, Sampling, Submit
from tests.engine_harness import EOS, VOCAB_SIZE, EngineHarness, make_submit
from tests.fake_grammar import scripted
from tests.grammar_harness import MakeHarness

PROMPT = list(range(40))
FREE = [3, 4, 5, 6, 7]
SCRIPT = [FREE, [13], [14], FREE, [15], FREE, FREE]


def whole(max_tokens: int = 12) -> Submit:
    return make_submit("whole", PROMPT, max_tokens=max_tokens)


@pytest.mark.parametrize("num_begun", [1, 5, 11])
def test_the_rest_of_an_answer_is_what_it_was(harness: EngineHarness, num_begun: int) -> None:
    answer = harness.ask(whole())
    begun = answer.token_ids[:num_begun]
    rest = make_submit("rest", PROMPT, max_tokens=12 - num_begun, output_prefix=begun)
    assert harness.ask(rest).token_ids == answer.token_ids[num_begun:]


def test_usage_counts_neither_as_prompt_nor_as_completion_what_was_begun(
    harness: EngineHarness,
) -> None:
    request = make_submit("a", PROMPT, max_tokens=6, output_prefix=[50, 51, 52], use_cache=False)
    usage = harness.ask(request).last.usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens) == (40, 6, 0)
    assert usage.recomputed_tokens == 0
    assert (harness.stats.prompt_tokens, harness.stats.computed_prompt_tokens) == (40, 40)
    assert harness.stats.generated_tokens == 6


def test_what_was_begun_is_in_the_prefix_cache(harness: EngineHarness) -> None:
    begun = harness.ask(whole()).token_ids
    before = harness.executor.num_computed_tokens
    harness.ask(make_submit("rest", PROMPT, max_tokens=1, output_prefix=begun))
    # The last token of an answer was not computed yet.
    assert harness.executor.num_computed_tokens - before == 1


def test_noise_penalties_and_min_tokens_count_on(harness: EngineHarness) -> None:
    sampling = Sampling(max_tokens=4, min_tokens=4, presence_penalty=0.5, repetition_penalty=1.1)
    harness.ask(make_submit("a", PROMPT, sampling=sampling, output_prefix=[50, 51]))
    rows = [plan.rows[0] for plan in harness.executor.plans]
    assert [row.position for row in rows] == [2, 3, 4, 5]
    assert [row.forbid_ids for row in rows] == [(EOS,), (EOS,), (), ()]
    assert rows[0].prompt_ids == tuple(PROMPT)
    assert rows[0].output_ids == (50, 51)
    assert rows[1].output_ids[:2] == (50, 51)
    assert len(rows[1].output_ids) == 3


def test_what_is_forbidden_first_is_allowed_later(harness: EngineHarness) -> None:
    favourite = EngineHarness(choose=lambda _history, _row: 60)
    assert favourite.ask(make_submit("a", PROMPT, max_tokens=3)).token_ids == [60, 60, 60]
    request = make_submit("b", PROMPT, max_tokens=3, first_forbidden=(60, 61))
    assert favourite.ask(request).token_ids == [62, 60, 60]
    assert favourite.executor.plans[-1].rows[0].forbid_ids == (EOS,)
    assert harness.ask(whole()).finish_reason == "length"


def test_forbidding_everything_first_is_an_error(harness: EngineHarness) -> None:
    request = make_submit("a", PROMPT, first_forbidden=tuple(range(VOCAB_SIZE)))
    answer = harness.ask(request)
    assert (answer.error_code, answer.token_ids) == (ErrorCode.CONSTRAINT_FAILED, [])


@pytest.mark.parametrize("jump_forward", [True, False])
@pytest.mark.parametrize("num_begun", range(7))
def test_the_rest_of_a_constrained_answer_is_what_it_was(
    make_grammar_harness: MakeHarness, num_begun: int, jump_forward: bool
) -> None:
    harness = make_grammar_harness(jump_forward=jump_forward)
    script = scripted(*SCRIPT)
    answer = harness.ask(make_submit("a", PROMPT, max_tokens=99, constraint=script))
    assert len(answer.token_ids) == len(SCRIPT)
    begun = answer.token_ids[:num_begun]
    request = make_submit("b", PROMPT, max_tokens=99, constraint=script, output_prefix=begun)
    rest = harness.ask(request)
    assert rest.token_ids == answer.token_ids[num_begun:]
    assert rest.finish_reason == "stop"


@pytest.mark.parametrize("num_choices", [1, 3])
def test_a_beginning_that_does_not_fit_the_constraint_is_an_error(
    make_grammar_harness: MakeHarness, num_choices: int
) -> None:
    harness = make_grammar_harness()
    request = make_submit(
        "a", PROMPT, constraint=scripted(*SCRIPT), output_prefix=[3, 13, 9], num_choices=num_choices
    )
    harness.ask(request)
    for choice in range(num_choices):
        error = harness.answer("a", choice).last.error
        assert error is not None
        assert error.code is ErrorCode.CONSTRAINT_FAILED
        assert "token 2" in error.message
    harness.assert_idle()


def test_a_mask_without_what_is_forbidden_first_leaves_the_others(
    make_grammar_harness: MakeHarness,
) -> None:
    harness = make_grammar_harness()
    script = scripted(FREE, FREE)
    first = harness.ask(make_submit("a", PROMPT, constraint=script)).token_ids[0]
    request = make_submit("b", PROMPT, constraint=script, first_forbidden=(first, 5))
    others = harness.ask(request).token_ids
    assert others[0] in set(FREE) - {first, 5}
    assert len(others) == 2


def test_a_mask_of_which_nothing_is_left_is_an_error(make_grammar_harness: MakeHarness) -> None:
    harness = make_grammar_harness()
    request = make_submit("a", PROMPT, constraint=scripted(FREE, [1]), first_forbidden=tuple(FREE))
    answer = harness.ask(request)
    assert (answer.error_code, answer.token_ids) == (ErrorCode.CONSTRAINT_FAILED, [])


def test_a_first_choice_may_be_forbidden_behind_a_beginning(
    make_grammar_harness: MakeHarness,
) -> None:
    harness = make_grammar_harness()
    script = scripted(*SCRIPT)
    answer = harness.ask(make_submit("a", PROMPT, max_tokens=99, constraint=script)).token_ids
    request = make_submit(
        "b",
        PROMPT,
        max_tokens=99,
        constraint=script,
        output_prefix=answer[:3],
        first_forbidden=(answer[3],),
    )
    other = harness.ask(request).token_ids
    assert other[0] in FREE
    assert other[0] != answer[3]
    assert other[1] == 15
    assert len(other) == 4
