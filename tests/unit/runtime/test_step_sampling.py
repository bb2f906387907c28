"""Constrained tokens are tried before a mask is filled, and come out as they would with it."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from grammar.errors import MatcherFailed
from grammar.matcher import MaskRow
from runtime.batch import SampledToken, SamplePlan, ScheduledBatch
from runtime.finish_rules import FinishRules
from runtime.messages import Sampling, TokenLogprob
from runtime.request import Sequence
from runtime.sample_planner import SamplePlanner
from runtime.sampler import sample
from runtime.step_sampling import StepSampling
from tests.engine_harness import EOS, VOCAB_SIZE, make_sequence
from tests.fake_grammar import ScriptMatcher

FREE = [3, 4, 5]


class LogitsExecutor:
    """Samples from given logits, [S, V], as the torch executor does; keeps its plans."""

    page_io = None

    def __init__(self, logits: Tensor) -> None:
        self._logits = logits
        self.plans: list[SamplePlan] = []

    def forward(self, batch: ScheduledBatch) -> None:
        raise AssertionError(f"the logits are given: {batch}")

    def sample(self, plan: SamplePlan) -> tuple[SampledToken, ...]:
        masks = None if plan.masks is None else plan.masks.copy()
        self.plans.append(replace(plan, masks=masks))
        logits = self._logits if plan.places is None else self._logits[list(plan.places)]
        return sample(logits, plan)

    def score(self) -> tuple[list[TokenLogprob], ...]:
        raise AssertionError("no prompt is scored here")


class CountingMatcher(ScriptMatcher):
    """Counts its masks, and says what it has accepted."""

    def __init__(self, allowed: list[list[int]], accepting_from: int | None = None) -> None:
        super().__init__(allowed, len(allowed) if accepting_from is None else accepting_from)
        self.num_masks = 0

    @property
    def accepted(self) -> list[int]:
        return self._accepted

    def fill(self, mask_row: MaskRow) -> None:
        self.num_masks += 1
        super().fill(mask_row)


def best(*token_ids: int) -> Tensor:
    """Logits whose rows prefer these tokens, then lower ids."""
    logits = -torch.arange(VOCAB_SIZE, dtype=torch.float32).repeat(len(token_ids), 1)
    logits[torch.arange(len(token_ids)), torch.tensor(token_ids)] = 9.0
    return logits


def sequence_of(
    matcher: ScriptMatcher | None, *, key: int = 0, sampling: Sampling | None = None
) -> Sequence:
    sequence = make_sequence([1], key=key, sampling=sampling or Sampling(9, temperature=0.0))
    sequence.matcher = matcher
    return sequence


def run(
    executor: LogitsExecutor, sequences: list[Sequence], *, tries_first: bool = True
) -> list[int | None]:
    rules = FinishRules(frozenset({EOS}), max_model_len=1000)
    planner = SamplePlanner(rules, vocab_size=VOCAB_SIZE, max_rows=8)
    sampled = StepSampling(executor, planner, tries_first=tries_first).sample(sequences)
    return [one.token_id for one in sampled]


def test_a_winner_that_is_allowed_needs_no_mask() -> None:
    matcher, executor = CountingMatcher([FREE, FREE]), LogitsExecutor(best(4))
    assert run(executor, [sequence_of(matcher)]) == [4]
    assert (matcher.num_masks, matcher.accepted, len(executor.plans)) == (0, [], 1)


def test_only_rows_whose_winner_is_refused_are_sampled_again() -> None:
    matchers = [CountingMatcher([FREE, FREE]) for _ in range(3)]
    sequences = [sequence_of(matcher, key=key) for key, matcher in enumerate(matchers)]
    sequences.insert(1, sequence_of(None, key=9))
    executor = LogitsExecutor(best(80, 70, 5, 60))
    assert run(executor, sequences) == [3, 70, 5, 3]
    assert [matcher.num_masks for matcher in matchers] == [1, 0, 1]
    assert [plan.places for plan in executor.plans] == [None, (0, 3)]
    assert [matcher.accepted for matcher in matchers] == [[], [], []]


@pytest.mark.parametrize("filters", [{"top_k": 2}, {"top_p": 0.5}, {"min_p": 0.1}])
def test_filters_need_the_mask_unless_the_best_token_is_taken(filters: dict[str, float]) -> None:
    for temperature, num_masks in ((1.0, 1), (0.0, 0)):
        sampling = Sampling(9, temperature=temperature, **filters)  # type: ignore[arg-type]
        matcher = CountingMatcher([FREE, FREE])
        assert run(LogitsExecutor(best(4)), [sequence_of(matcher, sampling=sampling)]) == [4]
        assert matcher.num_masks == num_masks


def test_where_text_is_forced_the_mask_says_in_which_tokens() -> None:
    matcher = CountingMatcher([[4], FREE])
    assert run(LogitsExecutor(best(4)), [sequence_of(matcher)]) == [4]
    assert matcher.num_masks == 1


def test_a_winner_that_the_client_does_not_allow_is_not_even_tried() -> None:
    sampling = Sampling(9, temperature=0.0, allowed_token_ids=(5, 80, 90))
    matcher, executor = CountingMatcher([FREE, FREE]), LogitsExecutor(best(4))
    assert run(executor, [sequence_of(matcher, sampling=sampling)]) == [5]
    assert (matcher.num_masks, len(executor.plans)) == (0, 1)


def test_a_grammar_and_allowed_tokens_that_share_none_leave_none() -> None:
    sampling = Sampling(9, temperature=0.0, allowed_token_ids=(80, 90))
    for tries_first in (True, False):
        sequences = [
            sequence_of(CountingMatcher([FREE, FREE]), sampling=sampling),
            sequence_of(CountingMatcher([FREE, FREE]), key=1),
        ]
        assert run(LogitsExecutor(best(4, 4)), sequences, tries_first=tries_first) == [None, 4]


def test_bad_words_give_way_to_a_grammar_that_leaves_nothing_else() -> None:
    cases: list[tuple[tuple[tuple[int, ...], ...], int]] = [
        (((4,), (3,)), 5),
        (((4,), (3,), (5,)), 4),
    ]
    for words, token_id in cases:
        sampling = Sampling(9, temperature=0.0, bad_words=words)
        matcher = CountingMatcher([FREE, FREE])
        assert run(LogitsExecutor(best(4)), [sequence_of(matcher, sampling=sampling)]) == [token_id]


def test_on_a_device_that_computes_meanwhile_masks_are_filled_at_once() -> None:
    matcher, executor = CountingMatcher([FREE, FREE]), LogitsExecutor(best(4))
    assert run(executor, [sequence_of(matcher)], tries_first=False) == [4]
    assert (matcher.num_masks, len(executor.plans)) == (1, 1)


def test_an_end_that_is_allowed_is_tried_as_well() -> None:
    matcher = CountingMatcher([FREE, FREE], accepting_from=0)
    assert run(LogitsExecutor(best(EOS)), [sequence_of(matcher)]) == [EOS]
    assert (matcher.num_masks, matcher.accepted) == (0, [])


class FailingMatcher(CountingMatcher):
    """Fails in one of its methods."""

    def __init__(self, method: str) -> None:
        super().__init__([FREE, FREE])
        self._method = method

    def forced_tokens(self) -> list[int]:
        self._fail_in("forced_tokens")
        return super().forced_tokens()

    def accept(self, token_ids: object) -> int:
        self._fail_in("accept")
        return super().accept(token_ids)  # type: ignore[arg-type]

    def fill(self, mask_row: MaskRow) -> None:
        super().fill(mask_row)
        raise MatcherFailed("the parser is broken for good")

    def _fail_in(self, method: str) -> None:
        if self._method == method:
            raise MatcherFailed("the parser ran out of fuel")


@pytest.mark.parametrize("method", ["forced_tokens", "accept"])
def test_a_matcher_that_breaks_when_tried_gets_no_token(method: str) -> None:
    broken, good = FailingMatcher(method), CountingMatcher([FREE, FREE])
    sequences = [sequence_of(broken, key=0), sequence_of(good, key=1)]
    assert run(LogitsExecutor(best(4, 4)), sequences) == [None, 4]


SAMPLINGS = st.builds(
    Sampling,
    max_tokens=st.just(9),
    temperature=st.sampled_from([0.0, 0.7, 3.0]),
    top_k=st.sampled_from([0, 0, 2]),
    min_p=st.sampled_from([0.0, 0.0, 0.2]),
    presence_penalty=st.sampled_from([0.0, 0.0, 1.0]),
    logit_bias=st.sampled_from([{}, {}, {3: 5.0, 90: 9.0}]),
    seed=st.integers(0, 9),
    min_tokens=st.sampled_from([0, 3]),
    ignore_eos=st.booleans(),
    num_logprobs=st.sampled_from([None, 2]),
    allowed_token_ids=st.none() | st.lists(st.integers(0, EOS), min_size=1, max_size=60).map(tuple),
    bad_words=st.lists(st.integers(0, EOS).map(lambda one: (one,)), max_size=50).map(tuple),
)


@settings(max_examples=120, deadline=None, derandomize=True)
@given(st.lists(SAMPLINGS, min_size=1, max_size=6), st.integers(0, 999))
def test_tried_or_masked_at_once_the_outcomes_are_the_same(
    samplings: list[Sampling], seed: int
) -> None:
    rng = random.Random(seed)
    scripts = [
        [sorted(rng.sample(range(VOCAB_SIZE - 1), rng.choice([1, 3, 40, 90]))), [1]]
        for _ in samplings
    ]
    ends = [rng.choice([0, 2]) for _ in samplings]
    logits = torch.from_numpy(
        np.random.default_rng(seed).normal(size=(len(samplings), VOCAB_SIZE)).astype(np.float32)
    )
    outcomes = []
    for tries_first in (True, False):
        sequences = [
            sequence_of(
                CountingMatcher(script, end) if number % 4 else None, key=number, sampling=sampling
            )
            for number, (script, end, sampling) in enumerate(
                zip(scripts, ends, samplings, strict=True)
            )
        ]
        outcomes.append(run(LogitsExecutor(logits), sequences, tries_first=tries_first))
    assert outcomes[0] == outcomes[1]
