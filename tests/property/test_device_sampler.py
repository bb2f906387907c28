"""The sampler for devices gives what the plain one gives, for every mix of rows, and waits once."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime import hardware
from runtime.batch import SampledToken, SamplePlan, SampleRow
from runtime.device_sampler import sample_on_device
from runtime.finish_rules import FinishRules
from runtime.messages import Sampling
from runtime.sample_planner import SamplePlanner
from runtime.sampler import sample
from tests.engine_harness import make_sequence
from tests.fake_grammar import ScriptMatcher
from tests.no_reads import NoReads

VOCAB = 70  # not a multiple of 32
TOKENS = st.integers(0, VOCAB - 1)
MASKS = 3


def _or(off: Any, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.just(off) | values


SAMPLINGS = st.builds(
    Sampling,
    max_tokens=st.just(1),
    temperature=st.sampled_from((0.0, 1e-6, 0.3, 1.0, 1.7)),
    top_p=_or(1.0, st.floats(0.0, 1.0)),
    top_k=_or(0, st.integers(1, VOCAB + 3)),
    min_p=_or(0.0, st.floats(0.001, 1.0)),
    frequency_penalty=_or(0.0, st.floats(-2.0, 2.0)),
    presence_penalty=_or(0.0, st.floats(-2.0, 2.0)),
    repetition_penalty=_or(1.0, st.floats(0.5, 2.0)),
    logit_bias=_or({}, st.dictionaries(TOKENS, st.floats(-100.0, 100.0), max_size=4)),
    seed=st.integers(-(2**63), 2**63 - 1),
    num_logprobs=_or(None, st.integers(0, VOCAB + 2)),
)
ROWS = st.builds(
    SampleRow,
    SAMPLINGS,
    choice=st.integers(0, 3),
    position=st.integers(0, 1000),
    prompt_ids=st.lists(TOKENS, max_size=5).map(tuple),
    output_ids=st.lists(TOKENS, max_size=8).map(tuple),
    forbid_ids=st.lists(TOKENS, max_size=3).map(tuple) | st.sets(TOKENS, min_size=50).map(tuple),
    mask=_or(None, st.integers(0, MASKS - 1)),
)
SHARES = st.lists(st.sampled_from((0.0, 0.02, 0.5, 1.0)), min_size=MASKS, max_size=MASKS)


def make_masks(shares: list[float], seed: int) -> npt.NDArray[np.int32]:
    """One mask a share of allowed tokens."""
    chance = np.random.default_rng(seed)
    bits = np.zeros((MASKS, 96), dtype=np.uint8)
    for line, share in zip(bits, shares, strict=True):
        line[:VOCAB] = chance.random(VOCAB) < share
    return np.packbits(bits, axis=1, bitorder="little").view(np.int32)


def make_logits(num_rows: int, seed: int) -> torch.Tensor:
    return 3 * torch.randn(num_rows, VOCAB, generator=torch.Generator().manual_seed(seed))


def assert_same(found: tuple[SampledToken, ...], expected: tuple[SampledToken, ...]) -> None:
    assert [token.token_id for token in found] == [token.token_id for token in expected]
    for token, other in zip(found, expected, strict=True):
        assert (token.logprob is None) == (other.logprob is None)
        if token.logprob is not None and other.logprob is not None:
            ids = [token_id for token_id, _ in token.logprob.top]
            assert ids == [token_id for token_id, _ in other.logprob.top]
            values = (token.logprob.logprob, *(value for _, value in token.logprob.top))
            others = (other.logprob.logprob, *(value for _, value in other.logprob.top))
            assert values == pytest.approx(others, abs=1e-5)


@settings(max_examples=300, deadline=None)
@given(rows=st.lists(ROWS, min_size=1, max_size=6), shares=SHARES, seed=st.integers(0, 10**6))
def test_any_mix_of_rows_gets_the_tokens_of_the_plain_sampler(
    rows: list[SampleRow], shares: list[float], seed: int
) -> None:
    logits = make_logits(len(rows), seed)
    untouched = logits.clone()
    plan = SamplePlan(tuple(rows), make_masks(shares, seed))
    assert_same(sample_on_device(logits, plan), sample(logits, plan))
    assert torch.equal(logits, untouched)


@pytest.mark.parametrize(
    "filters",
    [
        {"top_p": 0.31},
        {"top_k": 7},
        {"min_p": 0.99},
        {"top_p": 0.6, "top_k": 20},
        {"top_k": 30, "min_p": 0.98},
        {"top_p": 0.5, "min_p": 0.985},
    ],
)
def test_filters_end_at_the_same_token(filters: dict[str, Any]) -> None:
    """All tokens are nearly as likely, so that in 400 draws the last that is left in comes up."""
    logits = (make_logits(1, 5) / 300).repeat(400, 1)
    sampling = Sampling(1, **filters)
    other = Sampling(1, top_k=31)
    rows = [SampleRow(one, 0, i) for i in range(400) for one in (sampling, other)]
    logits, plan = logits.repeat(2, 1), SamplePlan(tuple(rows))
    found = sample_on_device(logits, plan)
    assert_same(found, sample(logits, plan))
    assert 5 < len({token.token_id for token in found[::2]}) < VOCAB


LIMITED = st.builds(
    Sampling,
    max_tokens=st.just(9),
    temperature=st.sampled_from((0.0, 1.0)),
    top_p=_or(1.0, st.just(0.5)),
    logit_bias=_or({}, st.dictionaries(TOKENS, st.floats(-100.0, 100.0), max_size=4)),
    min_tokens=st.sampled_from((0, 3)),
    ignore_eos=st.booleans(),
    num_logprobs=_or(None, st.integers(0, 3)),
    allowed_token_ids=_or(None, st.sets(TOKENS, min_size=1).map(tuple)),
    bad_words=st.lists(st.lists(TOKENS, min_size=1, max_size=2).map(tuple), max_size=30).map(tuple),
)


@settings(max_examples=200, deadline=None)
@given(
    rows=st.lists(st.tuples(LIMITED, _or(None, st.sets(TOKENS, min_size=1))), max_size=6),
    answer=st.lists(TOKENS, max_size=2),
    seed=st.integers(0, 10**6),
)
def test_rows_as_the_planner_makes_them_of_limits_and_grammars_get_the_same_tokens(
    rows: list[tuple[Sampling, set[int] | None]], answer: list[int], seed: int
) -> None:
    sequences = []
    for key, (sampling, allowed) in enumerate(rows):
        sequence = make_sequence([1], key=key, sampling=sampling)
        sequence.token_ids += answer
        sequence.matcher = ScriptMatcher([sorted(allowed)], 1) if allowed is not None else None
        sequences.append(sequence)
    rules = FinishRules(frozenset({VOCAB - 1}), max_model_len=1000)
    planner = SamplePlanner(rules, vocab_size=VOCAB, max_rows=6)
    logits = make_logits(len(rows), seed)
    for without_mask in ((), sequences[::2]):
        plan = planner.plan(sequences, without_mask=without_mask)
        assert_same(sample_on_device(logits, plan), sample(logits, plan))


def test_no_rows_give_no_tokens() -> None:
    assert sample_on_device(torch.zeros(0, VOCAB), SamplePlan(())) == ()


def test_a_row_without_numbers_gets_no_token_and_harms_no_other() -> None:
    logits = make_logits(3, 0)
    logits[1] = float("nan")
    rows = tuple(SampleRow(Sampling(1, temperature=t, top_p=0.9), 0, 0) for t in (0.0, 1.0, 1.0))
    found = sample_on_device(logits, SamplePlan(rows))
    assert_same(found, sample(logits, SamplePlan(rows)))
    assert [token.token_id is None for token in found] == [False, True, False]


@contextmanager
def counted_copies(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """How often the functions that copy between host and device are called."""
    counts = {"to_host": 0, "to_device": 0}

    def counting(name: str, function: Any) -> Any:
        def call(*args: Any) -> Any:
            counts[name] += 1
            return function(*args)

        return call

    monkeypatch.setattr("runtime.device_sampler.to_host", counting("to_host", hardware.to_host))
    monkeypatch.setattr("runtime.staging.to_device", counting("to_device", hardware.to_device))
    yield counts


def test_a_step_of_every_kind_of_row_copies_once_each_way_and_reads_nothing_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    edits: dict[str, Any] = {
        "repetition_penalty": 1.2,
        "frequency_penalty": 0.5,
        "logit_bias": {3: 1.0},
    }
    rows = (
        SampleRow(Sampling(1, temperature=0.0), 0, 0),
        SampleRow(Sampling(1, num_logprobs=4), 0, 0, mask=1),
        SampleRow(Sampling(1, top_p=0.8, top_k=9, min_p=0.1), 0, 0, mask=2, forbid_ids=(4,)),
        SampleRow(Sampling(1, **edits), 0, 0, prompt_ids=(1, 2), output_ids=(2, 2)),
    )
    plan = SamplePlan(rows, make_masks([0.5, 0.5, 0.5], 0))
    logits = make_logits(4, 1)
    with counted_copies(monkeypatch) as counts, NoReads():
        sample_on_device(logits, plan)
    assert counts == {"to_host": 1, "to_device": 1}


def test_rows_that_take_the_best_token_need_no_copy_to_the_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = tuple(SampleRow(Sampling(1, temperature=0.0), 0, 0) for _ in range(3))
    with counted_copies(monkeypatch) as counts:
        sample_on_device(make_logits(3, 0), SamplePlan(rows))
    assert counts == {"to_host": 1, "to_device": 0}


def test_the_plain_sampler_would_be_caught_reading() -> None:
    rows = (SampleRow(Sampling(1, top_p=0.8), 0, 0),)
    with NoReads(), pytest.raises(AssertionError, match="reads from the device"):
        sample(make_logits(1, 0), SamplePlan(rows))
