"""The default model in float32 says the same however its tokens are computed.

Every answer is judged against one whole uncached forward; ties of less than 1e-4 are allowed
where they are rare.
"""

import pytest

from runtime.messages import Sampling, Submit
from tests.engine_harness import Answer, EngineDriver, make_submit
from tests.model_file import needs_model
from tests.real_model import RealModel

# A real model on cores that other work may share.
pytestmark = [needs_model, pytest.mark.timeout(120)]

TEXTS = (
    "The capital of France is Paris, and the capital of Italy is",
    "Once upon a time there was a small robot who lived in a library. Every morning it",
    "To bake bread you need flour, water, salt and yeast. First, mix the flour and",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "The three states of matter are solid, liquid and gas. When ice melts, it becomes",
    "Dear Sir or Madam, I am writing to you because my order number 1234 has not",
)
FACTS = " ".join(
    f"Fact {number}: the number {number} plus {number + 7} is {2 * number + 7}."
    for number in range(90)
)


def greedy(request_id: str, prompt: list[int], *, max_tokens: int, num_choices: int = 1) -> Submit:
    sampling = Sampling(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
    return make_submit(request_id, prompt, sampling=sampling, num_choices=num_choices)


def run_all(engine: EngineDriver, requests: list[Submit]) -> list[Answer]:
    for request in requests:
        engine.submit(request)
    engine.run()
    engine.assert_idle()
    return [engine.answer(request.request_id) for request in requests]


def assert_best(model: RealModel, requests: list[Submit], answers: list[Answer]) -> None:
    for request, answer in zip(requests, answers, strict=True):
        assert len(answer.token_ids) == request.sampling.max_tokens
        model.assert_best(request.prompt_token_ids, answer.token_ids)
    assert model.num_ties <= 0.01 * model.num_judged


def all_texts(model: RealModel, *, max_tokens: int, prompt_len: int = 99) -> list[Submit]:
    return [
        greedy(f"r{number}", model.encode(text)[:prompt_len], max_tokens=max_tokens)
        for number, text in enumerate(TEXTS)
    ]


def test_alone_and_uncached(real_model: RealModel) -> None:
    requests = all_texts(real_model, max_tokens=20)[:2]
    answers = [real_model.engine().ask(request) for request in requests]
    assert_best(real_model, requests, answers)


def test_among_eight_others_that_come_and_go(real_model: RealModel) -> None:
    engine = real_model.engine()
    others = [
        greedy(
            f"other{number}", real_model.encode(FACTS)[number * 9 :][: 10 + number], max_tokens=9
        )
        for number in range(8)
    ]
    requests = [*all_texts(real_model, max_tokens=24)[:1], *others]
    for request in requests:
        engine.submit(request)
        engine.step()
    engine.run()
    answers = [engine.answer(request.request_id) for request in requests]
    assert_best(real_model, requests, answers)


def test_prefill_in_chunks_of_seven(real_model: RealModel) -> None:
    requests = [greedy("long", real_model.encode(FACTS)[:100], max_tokens=12)]
    requests += all_texts(real_model, max_tokens=12)[:3]
    engine = real_model.engine(max_step_tokens=7)
    assert_best(real_model, requests, run_all(engine, requests))
    assert engine.stats.steps >= sum(len(one.prompt_token_ids) for one in requests) / 7


def test_prefix_from_the_cache_whole_pages_and_partial_ones(real_model: RealModel) -> None:
    engine = real_model.engine()
    facts = real_model.encode(FACTS)
    engine.ask(greedy("first", facts[:75], max_tokens=4))
    ends = (40, 64, 70, 75)
    requests = [greedy(f"r{end}", [*facts[:end], 284, 253], max_tokens=10) for end in ends]
    answers = run_all(engine, requests)
    assert_best(real_model, requests, answers)
    cached = [answer.last.usage.cached_tokens for answer in answers if answer.last.usage]
    assert all(end <= hit <= end + 1 for end, hit in zip(ends, cached, strict=True))


def test_six_requests_in_a_pool_for_two(real_model: RealModel) -> None:
    """12 + 34 tokens need three pages; each is admitted with one, and six pages are there."""
    requests = all_texts(real_model, max_tokens=34, prompt_len=12)
    engine = real_model.engine(num_pages=6, watermark=0.0)
    engine.expect_short_answers()  # else the first two alone are let in
    assert_best(real_model, requests, run_all(engine, requests))
    assert engine.stats.preemptions >= 4
    assert engine.stats.recomputed_tokens > 0


def test_choices_of_one_request_share_the_prefill(real_model: RealModel) -> None:
    prompt = real_model.encode(FACTS)[:70]
    engine = real_model.engine()
    answer = engine.ask(greedy("a", prompt, max_tokens=12, num_choices=3))
    real_model.assert_best(prompt, answer.token_ids)
    assert engine.answer("a", 1).token_ids == engine.answer("a", 2).token_ids == answer.token_ids
    assert engine.stats.computed_prompt_tokens == 70 + 2 * 6


def test_sampled_choices_depend_on_seed_and_choice_alone(real_model: RealModel) -> None:
    prompt = real_model.encode(TEXTS[1])
    sampling = Sampling(max_tokens=12, temperature=1.0, seed=7, ignore_eos=True)
    together = real_model.engine()
    together.submit(make_submit("a", prompt, sampling=sampling, num_choices=3))
    together.submit(make_submit("b", real_model.encode(TEXTS[2]), sampling=sampling))
    together.run()
    alone = real_model.engine().ask(make_submit("a", prompt, sampling=sampling))
    answers = [together.answer("a", choice).token_ids for choice in range(3)]
    assert answers[0] == alone.token_ids
    assert len({tuple(answer) for answer in answers}) == 3


def test_a_prefix_of_1400_tokens_is_computed_once_and_the_next_turn_reuses_the_answer(
    real_model: RealModel,
) -> None:
    prefix = real_model.encode(FACTS)[:1_400]
    assert len(prefix) == 1_400
    engine = real_model.engine()
    engine.ask(greedy("first", [*prefix, 504, 506], max_tokens=2))
    before = engine.stats.computed_prompt_tokens
    request = greedy("second", [*prefix, *real_model.encode(" So the answer is")], max_tokens=8)
    second = engine.ask(request)
    assert second.last.usage is not None
    assert second.last.usage.cached_tokens >= 1_390
    assert engine.stats.computed_prompt_tokens - before <= 26
    assert_best(real_model, [request], [second])
    turn = [*request.prompt_token_ids, *second.token_ids, 198, 504]
    third = engine.ask(greedy("third", turn, max_tokens=2))
    assert third.last.usage is not None
    # The last token of an answer is sampled, not computed.
    assert third.last.usage.cached_tokens == len(turn) - 3
