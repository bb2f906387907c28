"""Attention of the native step in random ragged batches, and which decoders it cannot run.

The model has one layer whose feed-forward gives nothing and whose embedding is small, so that the
logits are what attention read.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.batch import PageId, RowKey, ScheduledBatch, ScheduledRow
from runtime.decoder import Decoder
from runtime.decoder_spec import DecoderSpec, LayerSpec, RotarySpec
from runtime.errors import ConfigError
from runtime.native.blocks import quantize_rows
from runtime.native.native_decoder import NativeDecoder, find_obstacle
from runtime.native.packed_weights import PackedWeights, pack, pack_gate_up
from runtime.native.reference import reference_weights
from runtime.pool_limits import PoolLimits
from runtime.torch_executor import TorchExecutor
from tests.native_library import HAS_COMPILER, NO_COMPILER, built_library, runnable_sets
from tests.rounding_attention import RoundingAttention

needs_compiler = pytest.mark.skipif(not HAS_COMPILER, reason=NO_COMPILER)
HIDDEN, VOCAB, MAX_LEN = 64, 90, 1024
# What attention gives is a sum whose weights the native step rounds to bfloat16 (2^-9), so that
# some of it rounds to the next of 255 steps: 0.7 % in the middle, 1.6 % at most. A key too few or
# too many among n changes about 1 / sqrt(n).
MAX_ERROR = 0.03
# A token that sees only itself gives its value, whatever its score and weight.
MAX_ERROR_OF_FIRST = 1e-5


def make_spec(
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    *,
    window: int | None = None,
    softcap: float | None = None,
) -> DecoderSpec:
    rotary = RotarySpec(tuple(100.0 ** (-i / head_dim) for i in range(head_dim // 2)))
    return DecoderSpec(
        hidden_size=HIDDEN,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        ffn_size=32,
        vocab_size=VOCAB,
        max_position=MAX_LEN,
        norm_eps=1e-6,
        attention_scale=1.5 * head_dim**-0.5,
        tied_embeddings=False,
        layers=(LayerSpec(rotary, window=window),),
        embedding_scale=0.01,
        attention_softcap=softcap,
    )


def random_weights(spec: DecoderSpec) -> PackedWeights:
    generator = torch.Generator().manual_seed(0)

    def random(num_rows: int, num_columns: int) -> Any:
        weights = torch.randn(num_rows, num_columns, generator=generator)
        return quantize_rows(weights * num_columns**-0.5)

    heads_size = spec.num_heads * spec.head_dim
    qkv_size = heads_size + 2 * spec.num_kv_heads * spec.head_dim
    matrices = {
        "embedding": pack(quantize_rows(torch.randn(VOCAB, HIDDEN, generator=generator))),
        "output": pack(random(VOCAB, HIDDEN)),
        "0.qkv": pack(random(qkv_size, HIDDEN)),
        "0.attention_output": pack(random(HIDDEN, heads_size)),
        "0.ffns.0.gate_up": pack_gate_up(random(64, HIDDEN)),
        "0.ffns.0.down": pack(quantize_rows(torch.zeros(HIDDEN, 32))),
    }
    norms = ("final_norm", "0.attention_norm", "0.ffn_norm")
    return PackedWeights(matrices, dict.fromkeys(norms, torch.ones(HIDDEN)))


@dataclass(frozen=True)
class Subject:
    native: NativeDecoder
    reference: TorchExecutor
    page_size: int


def make_subject(spec: DecoderSpec, *, page_size: int) -> Subject:
    weights = random_weights(spec)
    limits = PoolLimits(num_pages=4096 // page_size, page_size=page_size, max_model_len=MAX_LEN)
    cpu = torch.device("cpu")
    attention = RoundingAttention(
        spec, num_pages=limits.num_pages, page_size=page_size, dtype=torch.float32, device=cpu
    )
    decoder = Decoder(spec, reference_weights(weights, spec), max_position=MAX_LEN)
    library = built_library(runnable_sets()[0])
    return Subject(
        NativeDecoder(library, spec, weights, limits, num_threads=2),
        TorchExecutor(decoder, attention, device=cpu),
        page_size,
    )


SUBJECTS: dict[str, dict[str, Any]] = {
    "plain": {"spec": make_spec(4, 2, 16), "page_size": 16},
    "many heads a group": {"spec": make_spec(12, 1, 32), "page_size": 32},
    "window of a page and a bit": {"spec": make_spec(4, 4, 48, window=20), "page_size": 16},
    "window of three pages": {"spec": make_spec(3, 1, 80, window=48), "page_size": 16},
    "window of one": {"spec": make_spec(2, 2, 16, window=1), "page_size": 16},
    "softcap": {"spec": make_spec(6, 2, 64, softcap=1.0), "page_size": 16},
    "softcap and window": {"spec": make_spec(2, 1, 128, softcap=1.0, window=33), "page_size": 48},
}


@pytest.fixture(scope="module", params=list(SUBJECTS.values()), ids=list(SUBJECTS))
def subject(request: pytest.FixtureRequest) -> Subject:
    return make_subject(**request.param)


@dataclass(frozen=True)
class Sequence:
    """`num_before` tokens of its own, after the shared prefix or none, then `num_new` at once."""

    is_sharing: bool
    num_before: int
    num_new: int


_SEQUENCES = st.builds(
    Sequence,
    st.booleans(),
    st.one_of(st.integers(0, 40), st.integers(0, 300)),
    st.one_of(st.just(1), st.integers(1, 40)),
)
_PREFIX_PAGES = st.one_of(st.integers(0, 6), st.integers(0, 18))


class Batches:
    """Lays the sequences out over random pages: the prefix, then what was before, then all new
    tokens in one step."""

    def __init__(
        self, sequences: list[Sequence], *, num_prefix_pages: int, page_size: int, seed: int
    ) -> None:
        self._page_size = page_size
        self._generator = torch.Generator().manual_seed(seed)
        self._free = torch.randperm(4096 // page_size, generator=self._generator).tolist()
        prefix_len = num_prefix_pages * page_size
        prefix = self._take(num_prefix_pages)
        before, new = [], []
        for sequence in sequences:
            shared = prefix if sequence.is_sharing else []
            start = prefix_len if sequence.is_sharing else 0
            middle = start + sequence.num_before
            end = middle + sequence.num_new
            pages = shared + self._take(-(-end // page_size) - len(shared))
            if sequence.num_before:
                before.append(self._row(start, middle, pages))
            new.append(self._row(middle, end, pages))
        self.steps = [
            ScheduledBatch(number, tuple(rows))
            for number, rows in enumerate(([self._row(0, prefix_len, prefix)], before, new))
            if any(row.token_ids for row in rows)
        ]

    def _take(self, count: int) -> list[int]:
        taken, self._free = self._free[:count], self._free[count:]
        return taken

    def _row(self, start: int, stop: int, pages: list[int]) -> ScheduledRow:
        """All its logits are wanted."""
        count = stop - start
        tokens = torch.randint(0, VOCAB, (count,), generator=self._generator).tolist()
        page_ids = tuple(PageId(page) for page in pages)
        return ScheduledRow(RowKey(0), tuple(tokens), start, page_ids, tuple(range(count)))


def errors(subject: Subject, batch: ScheduledBatch) -> Iterator[tuple[int, float]]:
    """The position of each token, and the relative error of its logits."""
    subject.reference.forward(batch)
    expected = subject.reference._logits
    assert expected is not None
    found = subject.native.step(batch)
    assert found.shape == expected.shape
    relative = (found - expected).norm(dim=-1) / expected.norm(dim=-1)
    first_rows = accumulate((len(row.sample_offsets) for row in batch.rows), initial=0)
    for row, first in zip(batch.rows, first_rows, strict=False):
        for place, offset in enumerate(row.sample_offsets):
            yield row.start + offset, float(relative[first + place])


@needs_compiler
@pytest.mark.timeout(300)  # the first test builds the library
@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    sequences=st.lists(_SEQUENCES, min_size=1, max_size=6),
    num_prefix_pages=_PREFIX_PAGES,
    seed=st.integers(0, 2**31),
)
def test_every_token_of_a_ragged_batch_sees_what_the_references_sees(
    subject: Subject, sequences: list[Sequence], num_prefix_pages: int, seed: int
) -> None:
    page_size = subject.page_size
    batches = Batches(sequences, num_prefix_pages=num_prefix_pages, page_size=page_size, seed=seed)
    for batch in batches.steps:
        for position, error in errors(subject, batch):
            assert error < MAX_ERROR, (batch.step, position)


@needs_compiler
@pytest.mark.timeout(300)
@pytest.mark.parametrize("num_tokens", [1, 2])
def test_first_tokens_give_their_values(subject: Subject, num_tokens: int) -> None:
    """But for the few of which a number lies so near the middle of two steps of 8 bits that its
    last bit decides."""
    rows = [
        ScheduledRow(RowKey(token), (token, 5)[:num_tokens], 0, (PageId(token % 85),), (0,))
        for token in range(VOCAB)
    ]
    of_first = torch.tensor(
        [
            error
            for start in range(0, VOCAB, 30)
            for _, error in errors(subject, ScheduledBatch(0, tuple(rows[start : start + 30])))
        ]
    )
    assert (of_first < MAX_ERROR_OF_FIRST).sum() > 0.9 * VOCAB
    assert of_first.max() < MAX_ERROR


class FullSystem:
    """A library on a system that has no more threads."""

    def rg_create(self, model: object, num_threads: int) -> None:
        """As the real one then."""


def test_too_many_threads_are_one_line() -> None:
    spec, limits = make_spec(1, 1, 16), PoolLimits(num_pages=1, page_size=16, max_model_len=16)
    with pytest.raises(ConfigError) as error:
        NativeDecoder(FullSystem(), spec, random_weights(spec), limits, num_threads=9)
    assert str(error.value) == (
        "the system has no room for the native step with 9 threads; lower num_threads"
    )


RUNNABLE = SUBJECTS["plain"]["spec"]


def test_specs_of_the_tests_can_run() -> None:
    for subject in SUBJECTS.values():
        assert find_obstacle(subject["spec"], page_size=subject["page_size"]) is None


@pytest.mark.parametrize(
    ("changes", "page_size", "obstacle"),
    [
        ({"head_dim": 8}, 16, "a head size of 8 is no multiple of 16 up to 256"),
        ({"head_dim": 288}, 16, "a head size of 288 is no multiple of 16 up to 256"),
        ({"hidden_size": 72}, 16, "a hidden size of 72 is no multiple of 16"),
        (
            {"num_heads": 65, "num_kv_heads": 1},
            16,
            "more than 64 query heads share a key-value head",
        ),
        ({}, 24, "a page of 24 tokens is no multiple of 16"),
    ],
)
def test_what_the_native_step_cannot_run_is_named(
    changes: dict[str, int], page_size: int, obstacle: str
) -> None:
    assert find_obstacle(replace(RUNNABLE, **changes), page_size=page_size) == obstacle


def test_the_greatest_sizes_can_run() -> None:
    greatest = replace(RUNNABLE, head_dim=256, num_heads=64, num_kv_heads=1)
    assert find_obstacle(greatest, page_size=64) is None
