"""Scores of a prompt over both executors: the same however the prompt is computed, and those that
the sampler would have given each token."""

from dataclasses import dataclass

import pytest
import torch

from runtime.batch import PageId, RowKey, SamplePlan, SampleRow, ScheduledBatch, ScheduledRow
from runtime.messages import Sampling, Submit, TokenLogprob
from runtime.native.native_executor import NativeExecutor
from tests.constrained_model import BYTE_VOCAB_SIZE, load_byte_model
from tests.engine_harness import Answer, EngineDriver, make_submit
from tests.native_library import HAS_COMPILER, NO_COMPILER, built_library, make_cache, runnable_sets
from tests.real_model import RealModel

pytestmark = pytest.mark.timeout(300)  # building the native step takes 17 s of a free core

PROMPT = [(37 * i + i * i // 3 + 5) % 250 for i in range(90)]
ALL = Sampling(max_tokens=1, temperature=0.0, num_logprobs=BYTE_VOCAB_SIZE)


@dataclass(frozen=True)
class Subject:
    """`max_error` of a log-probability: in 8 bits a last bit that differs may round an activation
    to the next of its 255 steps."""

    model: RealModel
    max_error: float


@pytest.fixture(
    scope="module",
    params=[
        "float32",
        pytest.param("int8", marks=pytest.mark.skipif(not HAS_COMPILER, reason=NO_COMPILER)),
    ],
)
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    if request.param == "int8":
        built_library(runnable_sets()[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(make_cache(tmp_path_factory.mktemp("cache") / "home")))
        model = load_byte_model(tmp_path_factory.mktemp("tiny") / "bytes", dtype=request.param)
    assert isinstance(model.executor, NativeExecutor) == (request.param == "int8")
    return Subject(model, 1e-4 if request.param == "float32" else 0.1)


def reference(model: RealModel, prompt: list[int]) -> torch.Tensor:
    """The distribution behind each token, from the sampler: [len(prompt), V]."""
    pages = tuple(PageId(page) for page in range(-(-len(prompt) // model.info.page_size)))
    places = tuple(range(len(prompt)))
    row = ScheduledRow(RowKey(1 << 40), tuple(prompt), 0, pages, places)
    model.executor.forward(ScheduledBatch(0, (row,)))
    sampled = model.executor.sample(SamplePlan(tuple(SampleRow(ALL, 0, 0) for _ in places)))
    tops = [token.logprob.top for token in sampled if token.logprob is not None]
    return torch.tensor([[value for _, value in sorted(top)] for top in tops])


def scored(request_id: str, *, max_tokens: int = 6, num_choices: int = 1) -> Submit:
    sampling = Sampling(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
    return make_submit(
        request_id, PROMPT, sampling=sampling, num_prompt_logprobs=3, num_choices=num_choices
    )


def scores_of(answer: Answer) -> list[TokenLogprob]:
    (scores,) = [event.prompt_logprobs for event in answer.events if event.prompt_logprobs]
    return scores


def assert_right(subject: Subject, answer: Answer) -> None:
    scores, expected = scores_of(answer), reference(subject.model, PROMPT)[:-1]
    own = torch.tensor([score.logprob for score in scores])
    wanted = expected.gather(1, torch.tensor(PROMPT)[1:, None])[:, 0]
    assert (own - wanted).abs().max() < subject.max_error
    for score, distribution in zip(scores, expected, strict=True):
        values = torch.tensor([value for _, value in score.top])
        assert (values - torch.topk(distribution, 3).values).abs().max() < subject.max_error
        at_ids = distribution[[token_id for token_id, _ in score.top]]
        assert (values - at_ids).abs().max() < subject.max_error
    assert answer.last.usage is not None
    assert answer.last.usage.cached_tokens == 0


@pytest.mark.parametrize("max_step_tokens", [1, 7, 64, 512])
def test_in_chunks_or_whole(subject: Subject, max_step_tokens: int) -> None:
    engine = subject.model.engine(max_step_tokens=max_step_tokens)
    assert_right(subject, engine.ask(scored("a")))


def test_with_a_warm_cache_as_with_a_cold_one(subject: Subject) -> None:
    engine = subject.model.engine()
    cold, warm = (engine.ask(scored(request_id)) for request_id in ("cold", "warm"))
    assert_right(subject, warm)
    assert cold.token_ids == warm.token_ids
    assert scores_of(cold) == scores_of(warm)


def test_the_answer_is_that_of_a_prompt_without_scores(subject: Subject) -> None:
    plain = make_submit("plain", PROMPT, sampling=scored("a").sampling)
    answers = [subject.model.engine().ask(request) for request in (plain, scored("a"))]
    assert answers[0].token_ids == answers[1].token_ids


def beside_others(subject: Subject, request: Submit) -> EngineDriver:
    """Streams that began before, and a prompt that begins in the same step."""
    engine = subject.model.engine(max_step_tokens=48)
    sampling = Sampling(max_tokens=30, seed=3, ignore_eos=True)
    for number in range(3):
        engine.submit(make_submit(f"r{number}", PROMPT[number:40], sampling=sampling))
    for _ in range(4):
        engine.step()
    engine.submit(make_submit("late", PROMPT[::-1], sampling=sampling))
    engine.submit(request)
    engine.run()
    engine.assert_idle()
    return engine


def test_beside_other_requests_and_without_harm_to_them(subject: Subject) -> None:
    engine = beside_others(subject, scored("a", num_choices=3))
    assert_right(subject, engine.answer("a"))
    assert engine.answer("a", 1).token_ids == engine.answer("a", 2).token_ids
    without = beside_others(subject, make_submit("a", [1, 2], max_tokens=1))
    if subject.max_error < 1e-3:  # else company alone may change a rounding, and so a token
        for request_id in ("r0", "r1", "r2", "late"):
            assert engine.answer(request_id).token_ids == without.answer(request_id).token_ids


def test_two_prompts_in_one_step_are_scored_each_with_as_many_best_as_it_wants(
    subject: Subject,
) -> None:
    engine = subject.model.engine()
    engine.submit(scored("a", max_tokens=0))
    engine.submit(make_submit("b", PROMPT[5:], max_tokens=0, num_prompt_logprobs=0))
    engine.run()
    assert_right(subject, engine.answer("a"))
    found = scores_of(engine.answer("b"))
    expected = reference(subject.model, PROMPT[5:])[:-1]
    own = torch.tensor([score.logprob for score in found])
    wanted = expected.gather(1, torch.tensor(PROMPT)[6:, None])[:, 0]
    assert (own - wanted).abs().max() < subject.max_error
    assert not any(score.top for score in found)


def test_after_preemptions_in_a_pool_that_is_too_small(subject: Subject) -> None:
    engine = subject.model.engine(num_pages=14, watermark=0.0, max_step_tokens=24)
    engine.expect_short_answers()
    requests = [scored(f"r{number}", max_tokens=70) for number in range(2)]
    others = [make_submit(f"o{number}", PROMPT[number:30], max_tokens=90) for number in range(2)]
    for request in (*others, *requests):
        engine.submit(request)
        engine.step()
    engine.run()
    assert engine.stats.preemptions > 0
    for request in requests:
        assert_right(subject, engine.answer(request.request_id))
