"""Allowed tokens, bad words and grammars together, against an oracle that works with sets; and
bad words in whole answers."""

import random

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.batch import SampledToken, SamplePlan, SampleRow, ScheduledBatch
from runtime.device_sampler import sample_on_device
from runtime.finish_rules import FinishRules
from runtime.messages import Sampling, Submit, TokenLogprob
from runtime.request import Sequence
from runtime.sample_planner import SamplePlanner
from runtime.sampler import sample
from runtime.step_sampling import StepSampling
from tests.engine_harness import EOS, VOCAB_SIZE, EngineHarness, make_sequence, make_submit
from tests.fake_executor import History
from tests.fake_grammar import ScriptMatcher

# Few enough that limits meet.
FEW = 12
TOKENS = st.integers(0, FEW - 1) | st.just(EOS)
RULES = FinishRules(frozenset({EOS}), max_model_len=1000)


class EitherExecutor:
    """Samples given logits with both samplers, which have to agree."""

    page_io = None

    def __init__(self, logits: torch.Tensor) -> None:
        self._logits = logits

    def forward(self, batch: ScheduledBatch) -> None:
        raise AssertionError(f"the logits are given: {batch}")

    def sample(self, plan: SamplePlan) -> tuple[SampledToken, ...]:
        logits = self._logits if plan.places is None else self._logits[list(plan.places)]
        sampled = sample(logits, plan)
        assert [one.token_id for one in sample_on_device(logits, plan)] == [
            one.token_id for one in sampled
        ]
        return sampled

    def score(self) -> tuple[list[TokenLogprob], ...]:
        raise AssertionError("no prompt is scored here")


SAMPLINGS = st.builds(
    Sampling,
    max_tokens=st.just(50),
    temperature=st.just(0.0),
    allowed_token_ids=st.none() | st.lists(TOKENS, min_size=1, max_size=FEW).map(tuple),
    bad_words=st.lists(st.lists(TOKENS, min_size=1, max_size=3).map(tuple), max_size=12).map(tuple),
    min_tokens=st.sampled_from((0, 5)),
    ignore_eos=st.booleans(),
    stop_token_ids=st.lists(TOKENS, max_size=2).map(tuple),
)


@st.composite
def sequences(draw: st.DrawFn) -> Sequence:
    """Some tokens into an answer, with a grammar or without."""
    sequence = make_sequence(
        draw(st.lists(TOKENS, min_size=1, max_size=3)),
        key=draw(st.integers(0, 10**9)),
        sampling=draw(SAMPLINGS),
        first_forbidden=tuple(draw(st.lists(TOKENS, max_size=2))),
    )
    sequence.token_ids += draw(st.lists(TOKENS, max_size=4))
    if draw(st.booleans()):
        allowed = draw(st.lists(TOKENS, min_size=1, max_size=FEW, unique=True))
        sequence.matcher = ScriptMatcher([allowed, [1, 2]], draw(st.integers(0, 2)))
    return sequence


def oracle(sequence: Sequence, scores: list[float]) -> int | None:
    """The best token of what is left, by the words of the documentation."""
    sampling, submit = sequence.sampling, sequence.request.submit
    left = set(range(VOCAB_SIZE))
    if sampling.allowed_token_ids is not None:
        left &= set(sampling.allowed_token_ids)
    if sequence.matcher is not None:
        left = {one for one in left if sequence.matcher.fork().accept([one])}
    answer = sequence.token_ids[sequence.num_prompt_tokens :]
    if not answer:
        left -= set(submit.first_forbidden)
    unwanted = {
        word[-1] for word in sampling.bad_words if tuple([*answer, word[-1]][-len(word) :]) == word
    }
    if len(answer) < sampling.min_tokens:
        unwanted |= {EOS, *sampling.stop_token_ids}
    if sampling.ignore_eos:
        unwanted.add(EOS)
    wanted = left - unwanted
    if sequence.matcher is not None and not wanted:
        wanted = left
    return max(wanted, key=lambda one: scores[one], default=None)


@settings(max_examples=250, deadline=None, derandomize=True)
@given(st.lists(sequences(), min_size=1, max_size=6), st.integers(0, 10**6), st.booleans())
def test_each_token_is_the_best_of_what_all_limits_leave(
    rows: list[Sequence], seed: int, tries_first: bool
) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(len(rows), VOCAB_SIZE, generator=generator)
    planner = SamplePlanner(RULES, vocab_size=VOCAB_SIZE, max_rows=len(rows))
    sampling = StepSampling(EitherExecutor(logits), planner, tries_first=tries_first)
    found = [outcome.token_id for outcome in sampling.sample(rows)]
    assert found == [oracle(row, scores) for row, scores in zip(rows, logits.tolist(), strict=True)]


def favourites(seed: int, num_tokens: int) -> list[int]:
    return random.Random(seed).choices(range(4), k=num_tokens)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    words=st.lists(
        st.lists(st.integers(0, 3), min_size=1, max_size=4).map(tuple), min_size=1, max_size=8
    ),
    seed=st.integers(0, 10**6),
    num_begun=st.integers(0, 3),
)
def test_no_answer_has_a_bad_word_nor_differs_where_none_is_near(
    words: list[tuple[int, ...]], seed: int, num_begun: int
) -> None:
    """The favourite of a place in the answer depends on nothing else: where another token comes,
    the favourite would have completed a word."""
    wanted = favourites(seed, 40)

    def choose(_history: History, row: SampleRow) -> int:
        return wanted[row.position]

    harness = EngineHarness(choose=choose)
    begun = [token_id for token_id in wanted[:num_begun] if (token_id,) not in words]
    request = make_submit(
        "a",
        [0, 1, 2, 3],
        sampling=Sampling(max_tokens=30, ignore_eos=True, bad_words=tuple(words)),
        output_prefix=begun,
    )
    answer = [*begun, *harness.ask(request).token_ids]
    assert len(answer) == len(begun) + 30
    for end in range(len(begun) + 1, len(answer) + 1):
        assert not _ends_badly(answer[:end], words)
        favourite = wanted[end - 1]
        is_avoided = _ends_badly([*answer[: end - 1], favourite], words)
        assert (answer[end - 1] == favourite) != is_avoided


def _ends_badly(answer: list[int], words: list[tuple[int, ...]]) -> bool:
    return any(tuple(answer[-len(word) :]) == word for word in words)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    limits=st.lists(
        st.lists(st.integers(0, EOS), min_size=1, max_size=9).map(tuple), min_size=1, max_size=6
    ),
    num_pages=st.integers(10, 30),
    max_step_tokens=st.sampled_from([3, 512]),
)
def test_no_answer_ever_leaves_what_is_allowed(
    limits: list[tuple[int, ...]], num_pages: int, max_step_tokens: int
) -> None:
    harness = EngineHarness(num_pages=num_pages, watermark=0.0, max_step_tokens=max_step_tokens)
    harness.expect_short_answers()
    requests = [_allowing(f"r{number}", limit) for number, limit in enumerate(limits)]
    for request in requests:
        harness.submit(request)
        harness.step()
    harness.run()
    for request, limit in zip(requests, limits, strict=True):
        answer = harness.answer(request.request_id)
        assert set(answer.token_ids) <= set(limit)
        assert answer.finish_reason == ("stop" if EOS in answer.token_ids else "length")


def _allowing(request_id: str, limit: tuple[int, ...]) -> Submit:
    sampling = Sampling(max_tokens=40, allowed_token_ids=limit)
    return make_submit(request_id, [len(limit), *limit], sampling=sampling)
