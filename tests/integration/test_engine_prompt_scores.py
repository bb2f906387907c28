"""Prompts that are scored, over an executor whose scores tell every token before: none is lost,
doubled or read from a page, whatever is cached, cut into chunks, preempted or beside it."""

import pytest

from runtime.messages import ErrorCode, Sampling, Submit, TokenLogprob
from tests.engine_harness import PAGE_SIZE, Answer, EngineHarness, alone, make_submit
from tests.fake_executor import score_by_hash
from tests.fake_grammar import scripted
from tests.grammar_harness import MakeHarness

PROMPT = [(i * 31) % 96 for i in range(70)]


def expected(prompt: list[int], num_best: int) -> list[TokenLogprob]:
    return [
        score_by_hash(tuple(prompt[:end]), prompt[end], num_best=num_best)
        for end in range(1, len(prompt))
    ]


def scored(
    request_id: str,
    prompt: list[int] = PROMPT,
    *,
    num_best: int = 2,
    max_tokens: int = 4,
    num_choices: int = 1,
    use_cache: bool = True,
) -> Submit:
    return make_submit(
        request_id,
        prompt,
        num_prompt_logprobs=num_best,
        max_tokens=max_tokens,
        num_choices=num_choices,
        use_cache=use_cache,
    )


def assert_scored(answer: Answer, prompt: list[int] = PROMPT, *, num_best: int = 2) -> None:
    """With the first token, or the end where there is none; and computed, not matched."""
    found = [event.prompt_logprobs for event in answer.events if event.prompt_logprobs]
    assert found == [expected(prompt, num_best)]
    first = next(event for event in answer.events if event.token_ids or event.is_last)
    assert first.prompt_logprobs
    assert answer.last.usage is not None
    assert answer.last.usage.cached_tokens == 0


@pytest.mark.parametrize("max_step_tokens", [1, 7, 69, 70, 512])
@pytest.mark.parametrize("num_best", [0, 3])
def test_in_chunks_of_any_size_each_token_but_the_first_has_its_score(
    max_step_tokens: int, num_best: int
) -> None:
    harness = EngineHarness(max_step_tokens=max_step_tokens)
    request = scored("a", num_best=num_best)
    answer = harness.ask(request)
    assert_scored(answer, num_best=num_best)
    assert answer.token_ids == alone(request)
    harness.assert_idle()


def test_a_warm_cache_gives_none_of_its_pages_and_gets_those_of_the_prompt(
    harness: EngineHarness,
) -> None:
    for request_id in ("cold", "warm"):
        assert_scored(harness.ask(scored(request_id)))
    plain = harness.ask(make_submit("plain", PROMPT))
    assert plain.last.usage is not None
    assert plain.last.usage.cached_tokens == len(PROMPT) - 1
    assert harness.stats.computed_prompt_tokens == 2 * len(PROMPT) + 1


def test_a_prompt_of_one_token_has_no_score_and_no_other_prompt_has_any(
    harness: EngineHarness,
) -> None:
    single = harness.ask(scored("single", [5]))
    plain = harness.ask(make_submit("plain", PROMPT))
    assert not any(event.prompt_logprobs for event in (*single.events, *plain.events))
    assert single.finish_reason == plain.finish_reason == "length"


def test_the_first_choice_alone_is_scored_and_the_others_take_its_pages(
    harness: EngineHarness,
) -> None:
    request = scored("a", num_choices=3)
    assert_scored(harness.ask(request))
    for choice in (1, 2):
        other = harness.answer("a", choice)
        assert not any(event.prompt_logprobs for event in other.events)
        assert other.token_ids == alone(request, choice)
        assert other.last.usage is not None
        assert other.last.usage.cached_tokens >= 64
    assert harness.stats.computed_prompt_tokens <= len(PROMPT) + 2 * PAGE_SIZE


@pytest.mark.parametrize("max_step_tokens", [8, 512])
@pytest.mark.parametrize("num_pages", [14, 20])
def test_preemption_neither_loses_nor_doubles_a_score(num_pages: int, max_step_tokens: int) -> None:
    harness = EngineHarness(num_pages=num_pages, watermark=0.0, max_step_tokens=max_step_tokens)
    harness.expect_short_answers()
    prompts = [[number, *PROMPT[: 40 + number]] for number in range(4)]
    requests = [
        scored(f"r{number}", prompt, max_tokens=60) for number, prompt in enumerate(prompts)
    ]
    for request in requests:
        harness.submit(request)
        harness.step()
    harness.run()
    for request, prompt in zip(requests, prompts, strict=True):
        answer = harness.answer(request.request_id)
        assert_scored(answer, prompt)
        assert answer.token_ids == alone(request)
    assert harness.stats.preemptions > 0
    harness.assert_idle()


@pytest.mark.parametrize(("num_old", "least_reused"), [(20, 80), (110, 16)])
def test_a_prompt_preempted_amid_its_prefill_goes_on_behind_what_was_scored(
    num_old: int, least_reused: int
) -> None:
    """The decode of an earlier one takes its pages. Of what was scored before, what is still in the
    tree is matched; the rest is computed once more, but not scored."""
    harness = EngineHarness(num_pages=9, watermark=0.0, max_step_tokens=8)
    harness.expect_short_answers()
    harness.submit(make_submit("old", [90, 91], max_tokens=num_old))
    harness.step()
    prompt = [7, *PROMPT, *PROMPT[:50]]
    harness.submit(scored("scored", prompt, max_tokens=2))
    harness.run()
    answer = harness.answer("scored")
    assert_scored(answer, prompt)
    assert answer.last.usage is not None
    assert harness.stats.preemptions > 0
    num_scored = sum(
        len(batch.scored[0].token_ids) for batch in harness.executor.batches if batch.scored
    )
    assert num_scored == len(prompt) - 1
    assert answer.last.usage.recomputed_tokens <= len(prompt) - least_reused
    assert answer.token_ids == alone(scored("scored", prompt, max_tokens=2))


def test_what_a_prompt_without_a_place_in_the_tree_is_scored_for_stays_nowhere(
    harness: EngineHarness,
) -> None:
    assert_scored(harness.ask(scored("a", use_cache=False)))
    assert harness.stats.pages_free == harness.stats.pages_total


def test_an_answer_gone_on_with_has_the_scores_of_its_prompt_only(harness: EngineHarness) -> None:
    request = make_submit(
        "a", PROMPT, num_prompt_logprobs=2, max_tokens=2, output_prefix=[50, 51, 52]
    )
    assert_scored(harness.ask(request))


def test_an_answer_that_a_grammar_opens_has_the_scores_of_its_prompt_only(
    make_grammar_harness: MakeHarness,
) -> None:
    harness = make_grammar_harness()
    script = scripted([13], [14], [3, 4], [15])
    answer = harness.ask(make_submit("a", PROMPT, num_prompt_logprobs=2, constraint=script))
    assert_scored(answer)
    assert answer.token_ids[:2] == [13, 14]


def test_an_abort_while_prompts_are_scored_leaves_nothing(harness: EngineHarness) -> None:
    harness = EngineHarness(max_step_tokens=16)
    harness.submit(scored("a"))
    harness.submit(scored("b", [1, *PROMPT]))
    for _ in range(3):
        harness.step()
    harness.abort("a")
    harness.run()
    assert_scored(harness.answer("b"), [1, *PROMPT])
    harness.assert_idle()


@pytest.mark.parametrize("max_step_tokens", [7, 512])
@pytest.mark.parametrize("num_best", [None, 1])
def test_a_prompt_that_is_only_scored_ends_when_it_is_computed(
    num_best: int | None, max_step_tokens: int
) -> None:
    harness = EngineHarness(max_step_tokens=max_step_tokens)
    request = make_submit("a", PROMPT, max_tokens=0, num_prompt_logprobs=num_best)
    answer = harness.ask(request)
    assert (answer.finish_reason, answer.token_ids) == ("length", [])
    usage = answer.last.usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens) == (70, 0, 0)
    assert (harness.stats.generated_tokens, harness.executor.num_computed_tokens) == (0, 70)
    assert not any(plan.rows for plan in harness.executor.plans)
    if num_best is not None:
        assert_scored(answer, num_best=num_best)
    harness.assert_idle()
    # What it left in the tree is what any prompt leaves.
    follower = harness.ask(make_submit("b", [*PROMPT, 5, 6], max_tokens=1))
    assert follower.last.usage is not None
    assert follower.last.usage.cached_tokens == 70


def test_no_choice_of_a_prompt_that_is_only_scored_gets_a_token(harness: EngineHarness) -> None:
    harness.submit(make_submit("beside", PROMPT[::-1], max_tokens=9))
    harness.submit(make_submit("a", PROMPT, max_tokens=0, num_prompt_logprobs=0, num_choices=3))
    harness.run()
    for choice in range(3):
        answer = harness.answer("a", choice)
        assert (answer.finish_reason, answer.token_ids) == ("length", [])
        assert bool(answer.last.prompt_logprobs) == (choice == 0)
    beside = make_submit("beside", PROMPT[::-1], max_tokens=9)
    assert harness.answer("beside").token_ids == alone(beside)
    harness.assert_idle()


def test_a_prompt_that_is_only_scored_may_fill_the_context() -> None:
    harness = EngineHarness(max_model_len=len(PROMPT), num_pages=5)
    assert_scored(harness.ask(scored("a", max_tokens=0)))
    assert harness.ask(scored("b", max_tokens=1)).error_code is ErrorCode.INVALID_REQUEST


def test_a_constraint_of_a_prompt_that_is_only_scored_is_no_output(
    make_grammar_harness: MakeHarness,
) -> None:
    harness = make_grammar_harness()
    sampling = Sampling(max_tokens=0)
    answer = harness.ask(
        make_submit("a", PROMPT, sampling=sampling, constraint=scripted([13], [14], [3, 4]))
    )
    assert (answer.finish_reason, answer.token_ids) == ("length", [])
    assert harness.executor.num_computed_tokens == len(PROMPT)


def test_memory_for_a_prompt_that_is_only_scored_is_not_kept_for_an_answer() -> None:
    """Three fit at once that would not if each were expected to grow."""
    harness = EngineHarness(num_pages=15, watermark=0.0)
    for number in range(3):
        prompt = [number, *PROMPT[:69]]
        harness.submit(make_submit(f"r{number}", prompt, max_tokens=0))
    harness.step()
    assert all(harness.is_done(f"r{number}") for number in range(3))
