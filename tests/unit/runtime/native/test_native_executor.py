"""What the native executor samples is what runtime/sampler.py, the reference, samples."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from runtime.batch import (
    PageId,
    RowKey,
    SampledToken,
    SamplePlan,
    SampleRow,
    ScheduledBatch,
    ScheduledRow,
)
from runtime.candidates import has_filter
from runtime.finish_rules import FinishRules
from runtime.messages import Sampling
from runtime.model_source import open_model
from runtime.native import native_executor
from runtime.native.native_decoder import NativeDecoder
from runtime.native.native_executor import NativeExecutor, is_simple
from runtime.native.packed_weights import load_packed_weights
from runtime.pool_limits import PoolLimits
from runtime.sample_planner import SamplePlanner
from runtime.sampler import sample
from tests.engine_harness import make_sequence
from tests.native_library import HAS_COMPILER, NO_COMPILER, built_library, runnable_sets
from tests.tiny_gguf import write_tiny_gguf

pytestmark = [
    pytest.mark.skipif(not HAS_COMPILER, reason=NO_COMPILER),
    pytest.mark.timeout(300),  # building the library takes 17 s of a free core
]
VOCAB_SIZE = 61  # no multiple of 16 or 32
NUM_MASKS, MASK_WORDS = 4, 2
EMPTY_MASK = 3


class ScriptedDecoder(NativeDecoder):
    """Gives the logits that a test wants."""

    script: torch.Tensor

    def step(self, batch: ScheduledBatch) -> torch.Tensor:  # noqa: ARG002
        return self.script


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> ScriptedDecoder:
    folder = tmp_path_factory.mktemp("executor")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        source = open_model(write_tiny_gguf(folder / "tiny.gguf"))
        weights = load_packed_weights(source)
    return ScriptedDecoder(
        built_library(runnable_sets()[0]),
        replace(source.spec, vocab_size=VOCAB_SIZE),
        weights,
        PoolLimits(num_pages=4, page_size=16, max_model_len=64),
        num_threads=1,
    )


def executor_for(decoder: ScriptedDecoder, logits: torch.Tensor) -> NativeExecutor:
    decoder.script = logits
    executor = NativeExecutor(decoder)
    row = ScheduledRow(RowKey(0), (1,) * len(logits), 0, (PageId(0),), tuple(range(len(logits))))
    executor.forward(ScheduledBatch(0, (row,)))
    return executor


def row(**fields: Any) -> SampleRow:
    names = ("position", "prompt_ids", "output_ids", "forbid_ids", "mask")
    own = {name: fields.pop(name) for name in names if name in fields}
    return SampleRow(Sampling(max_tokens=1, **fields), 0, own.pop("position", 0), **own)


SIMPLE: dict[str, dict[str, Any]] = {
    "best": {"temperature": 0.0},
    "best at a tiny temperature": {"temperature": 1e-6},
    "best but": {"temperature": 0.0, "forbid_ids": (2, 60, 17)},
    "best of a mask": {"temperature": 0.0, "mask": 1},
    "best of nothing": {"temperature": 0.0, "mask": EMPTY_MASK},
    "best of all forbidden": {"temperature": 0.0, "forbid_ids": tuple(range(VOCAB_SIZE))},
    "drawn": {"temperature": 1.0},
    "drawn but": {"temperature": 0.7, "forbid_ids": (0, 1)},
    "drawn of a mask": {"temperature": 2.0, "mask": 2},
    "drawn of nothing": {"temperature": 1.0, "mask": EMPTY_MASK},
    "top_k": {"temperature": 1.0, "top_k": 4},
    "top_k of one": {"temperature": 1.0, "top_k": 1},
    "top_k of all": {"temperature": 1.5, "top_k": VOCAB_SIZE},
    "top_k of 33 bits": {"temperature": 1.5, "top_k": 2**32 + 1},
    "top_p": {"temperature": 1.0, "top_p": 0.5},
    "top_p of nearly all": {"temperature": 5.0, "top_p": 0.999},
    "min_p": {"temperature": 1.0, "min_p": 0.2},
    "all filters of a mask": {
        "temperature": 2.0,
        "top_k": 20,
        "top_p": 0.8,
        "min_p": 0.05,
        "mask": 0,
    },
    "top_p but": {"temperature": 0.8, "top_p": 0.9, "forbid_ids": (4, 8)},
    "top_k of nothing": {"temperature": 1.0, "top_k": 3, "mask": EMPTY_MASK},
    "top_p of nothing": {"temperature": 1.0, "top_p": 0.9, "mask": EMPTY_MASK},
    "min_p of nothing": {"temperature": 1.0, "min_p": 0.9, "mask": EMPTY_MASK},
}
OTHER: dict[str, dict[str, Any]] = {
    "with probabilities": {"temperature": 0.0, "num_logprobs": 3},
    "biased": {"temperature": 0.0, "logit_bias": {5: 3.0, 6: -100.0}},
    "repetition": {"temperature": 0.0, "repetition_penalty": 1.5, "prompt_ids": (3, 4)},
    "frequency": {"temperature": 0.0, "frequency_penalty": 1.0, "output_ids": (3, 3, 9)},
    "presence": {"temperature": 1.0, "presence_penalty": 1.0, "output_ids": (3, 3, 9)},
    "mask and forbidden": {"temperature": 0.0, "mask": 0, "forbid_ids": (2, 60)},
    "empty mask and forbidden": {"temperature": 0.0, "mask": EMPTY_MASK, "forbid_ids": (2,)},
}
KINDS = SIMPLE | OTHER


def masks_of(rng: np.random.Generator) -> Any:
    masks = rng.integers(-(2**31), 2**31, (NUM_MASKS, MASK_WORDS)).astype(np.int32)
    masks[EMPTY_MASK] = 0
    return masks


def random_case(seed: int, kinds: list[str]) -> tuple[torch.Tensor, SamplePlan]:
    """Rows of random kinds. Some scores are equal, but where a filter would have to choose."""
    rng = np.random.default_rng(seed)
    num_rows = int(rng.integers(1, 9))
    logits = torch.from_numpy(rng.standard_normal((num_rows, VOCAB_SIZE)).astype(np.float32) * 2)
    rows = tuple(
        row(**KINDS[str(kind)], seed=int(rng.integers(2**40)), position=index)
        for index, kind in enumerate(rng.choice(kinds, num_rows))
    )
    for scores, one in zip(logits, rows, strict=True):
        if not has_filter(one.sampling):
            scores.round_()
    return logits, SamplePlan(rows, masks_of(rng))


def test_the_kinds_are_what_the_tests_take_them_for() -> None:
    assert all(is_simple(row(**fields)) for fields in SIMPLE.values())
    assert not any(is_simple(row(**fields)) for fields in OTHER.values())


@pytest.mark.parametrize("kinds", [list(SIMPLE), list(OTHER), list(KINDS)], ids=["s", "o", "all"])
def test_tokens_and_probabilities_are_the_references(
    decoder: ScriptedDecoder, kinds: list[str]
) -> None:
    for seed in range(150):
        logits, plan = random_case(seed, kinds)
        expected = sample(logits.clone(), plan)
        assert executor_for(decoder, logits).sample(plan) == expected, seed


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_alone_is_the_references(decoder: ScriptedDecoder, kind: str) -> None:
    tokens: set[int | None] = set()
    for seed in range(20):
        logits, plan = random_case(seed, [kind])
        sampled = executor_for(decoder, logits).sample(plan)
        assert sampled == sample(logits, plan)
        tokens |= {one.token_id for one in sampled}
    assert (None in tokens) == (kind.endswith(("nothing", "all forbidden")) or "empty" in kind)


def test_rows_of_allowed_tokens_and_bad_words_are_simple(decoder: ScriptedDecoder) -> None:
    limits: list[dict[str, Any]] = [
        {"allowed_token_ids": (3, 40, 60), "bad_words": ((40,),), "temperature": 0.0},
        {"allowed_token_ids": (3, 60), "ignore_eos": True, "top_k": 2},
        {"bad_words": ((5,), (7,), (1, 8))},
        {"allowed_token_ids": (3,), "bad_words": ((3,),)},
    ]
    sequences = [
        make_sequence([1], key=key, sampling=Sampling(max_tokens=9, **one))
        for key, one in enumerate(limits)
    ]
    rules = FinishRules(frozenset({60}), max_model_len=100)
    plan = SamplePlanner(rules, vocab_size=VOCAB_SIZE, max_rows=4).plan(sequences)
    assert all(is_simple(row) for row in plan.rows)
    logits, _ = random_case(3, ["best"])
    logits = logits[:1].repeat(4, 1)
    sampled = executor_for(decoder, logits).sample(plan)
    assert sampled == sample(logits, plan)
    found = [one.token_id for one in sampled]
    assert found[0] in (3, 60)
    assert found[1:2] == [3]
    assert found[3] is None


def test_simple_rows_do_not_go_through_torch(
    decoder: ScriptedDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(native_executor, "sample")
    logits, plan = random_case(0, list(SIMPLE))
    assert len(executor_for(decoder, logits).sample(plan)) == len(plan.rows)


def test_sampling_again_and_otherwise_finds_the_same_logits(decoder: ScriptedDecoder) -> None:
    for seed in range(40):
        logits, plan = random_case(seed, list(KINDS))
        before = logits.clone()
        executor = executor_for(decoder, logits)
        first = executor.sample(plan)
        assert executor.sample(plan) == first
        plain = replace(plan, rows=tuple(row(temperature=0.0) for _ in plan.rows))
        assert executor.sample(plain) == sample(before, plain)
        assert torch.equal(logits, before)


def test_no_rows_give_no_tokens(decoder: ScriptedDecoder) -> None:
    executor = NativeExecutor(decoder)
    executor.forward(ScheduledBatch(0, ()))
    assert executor.sample(SamplePlan(())) == ()


@pytest.mark.parametrize(
    ("change", "token_id"),
    [
        (lambda logits: logits.fill_(-torch.inf), None),
        (lambda logits: logits.fill_(torch.nan), None),
        (lambda logits: logits[0, 0].fill_(torch.nan), 7),
    ],
)
def test_what_is_no_number_is_not_chosen(
    decoder: ScriptedDecoder, change: Callable[[torch.Tensor], Any], token_id: int | None
) -> None:
    logits = torch.zeros(1, VOCAB_SIZE)
    logits[0, 7] = 1.0
    change(logits)
    sampled = executor_for(decoder, logits).sample(SamplePlan((row(temperature=0.0),)))
    assert sampled == (SampledToken(token_id),)


@pytest.mark.parametrize("fields", [SIMPLE["best"], OTHER["biased"]], ids=["simple", "other"])
def test_some_rows_of_a_forward_are_sampled_again(
    decoder: ScriptedDecoder, fields: dict[str, Any]
) -> None:
    logits = torch.randn(4, VOCAB_SIZE, generator=torch.Generator().manual_seed(5))
    executor = executor_for(decoder, logits.clone())
    rows = tuple(row(position=position, **fields) for position in range(4))
    whole = executor.sample(SamplePlan(rows))
    assert len({one.token_id for one in whole}) > 1
    again = executor.sample(SamplePlan((rows[1], rows[3]), places=(1, 3)))
    assert again == (whole[1], whole[3])
