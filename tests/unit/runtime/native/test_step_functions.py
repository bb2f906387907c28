"""The functions of the built library one by one, for every instruction set of this machine."""

import ctypes
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.candidates import pick_candidates
from runtime.messages import Sampling
from runtime.native import library as c
from runtime.native.blocks import Blocks
from runtime.native.instruction_sets import InstructionSet
from runtime.native.packed_weights import PackedMatrix, pack, unpack
from runtime.native.reference import BlockLinear, round_activations
from runtime.noise import gumbel_noise, noise_key
from tests.native_library import HAS_COMPILER, NO_COMPILER, built_library, runnable_sets

pytestmark = [
    pytest.mark.skipif(not HAS_COMPILER, reason=NO_COMPILER),
    pytest.mark.timeout(300),  # building a library takes up to 17 s of a free core
]
every_set = pytest.mark.parametrize(
    "instruction_set", runnable_sets(), ids=lambda one: str(one.name)
)
NOTHING = np.float32(-math.inf)


def random_matrix(num_rows: int, num_blocks: int, *, bits: int, seed: int = 0) -> PackedMatrix:
    generator = torch.Generator().manual_seed(seed)
    shape = (num_rows, num_blocks)
    levels = torch.randint(0, 2**bits, (*shape, 32), generator=generator, dtype=torch.uint8)
    scales, minima = torch.randn(2, *shape, generator=generator)
    return pack(Blocks(bits, levels, scales, minima * 2 ** (bits - 1)))


def c_matrix(matrix: PackedMatrix) -> c.Matrix:
    return c.Matrix(
        data=matrix.data.data_ptr(),
        scale=matrix.scale,
        bits=matrix.bits,
        num_outputs=matrix.num_outputs,
        num_blocks=matrix.num_blocks,
    )


def multiply(library: Any, matrix: PackedMatrix, rows: torch.Tensor) -> torch.Tensor:
    out = torch.full((rows.shape[0], matrix.num_outputs), math.nan)
    c_of_matrix = c_matrix(matrix)
    assert library.rg_multiply(
        ctypes.byref(c_of_matrix), rows.data_ptr(), rows.shape[0], out.data_ptr()
    )
    return out


@every_set
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("num_blocks", [1, 2, 5])
def test_products_are_the_references(
    instruction_set: InstructionSet, bits: int, num_blocks: int
) -> None:
    """Activations are rounded alike, so all that may differ is the order of float32 sums."""
    library = built_library(instruction_set)
    matrix = random_matrix(40, num_blocks, bits=bits)
    blocks = unpack(matrix)
    sizes = (
        blocks.levels * blocks.scales[..., None].abs() + blocks.minima[..., None].abs()
    ).flatten(1)
    generator = torch.Generator().manual_seed(num_blocks)
    for num_rows in range(1, 34):
        rows = torch.randn(num_rows, 32 * num_blocks, generator=generator)
        rows *= 10.0 ** torch.randint(-3, 4, (num_rows, 1), generator=generator)
        expected = BlockLinear(blocks, num_inputs=32 * num_blocks)(rows)
        bound = 2e-6 * (round_activations(rows).abs() @ sizes.T)
        assert ((multiply(library, matrix, rows) - expected).abs() <= bound).all(), num_rows


@every_set
def test_a_block_of_zeros_gives_nothing(instruction_set: InstructionSet) -> None:
    rows = torch.randn(3, 96, generator=torch.Generator().manual_seed(0))
    rows[1] = 0
    rows[2, 32:64] = 0
    matrix = random_matrix(16, 3, bits=8)
    products = multiply(built_library(instruction_set), matrix, rows)
    assert not products[1].any()
    assert torch.isfinite(products).all()
    dense = unpack(matrix).to_floats()
    without = (
        torch.cat((rows[2:, :32], rows[2:, 64:]), 1) @ dense[:, [*range(32), *range(64, 96)]].T
    )
    assert (products[2] - without[0]).norm() < 0.02 * without.norm()


@every_set
def test_activations_too_small_to_divide_by_give_nothing(instruction_set: InstructionSet) -> None:
    rows = torch.full((2, 32), 1e-38)
    rows[1] = -1e-42
    products = multiply(built_library(instruction_set), random_matrix(16, 1, bits=8), rows)
    assert (products.abs() < 1e-20).all()


@every_set
@pytest.mark.parametrize("bits", [4, 8])
def test_a_row_is_unpacked_to_the_bit(instruction_set: InstructionSet, bits: int) -> None:
    library = built_library(instruction_set)
    matrix = random_matrix(37, 3, bits=bits, seed=2)
    c_of_matrix = c_matrix(matrix)
    expected = unpack(matrix).to_floats()
    for row in range(37):
        found = torch.full((96,), math.nan)
        library.rg_unpack_row(ctypes.byref(c_of_matrix), row, found.data_ptr())
        assert torch.equal(found, expected[row])


def choose(
    library: Any, scores: npt.NDArray[np.float32], choices: list[c.Choice]
) -> list[tuple[int, float]]:
    tokens, best = np.full(len(scores), -7, np.int32), np.full(len(scores), 7, np.float32)
    library.rg_choose(
        scores.ctypes.data,
        len(scores),
        scores.shape[1],
        (c.Choice * len(scores))(*choices),
        tokens.ctypes.data,
        best.ctypes.data,
    )
    return list(zip(tokens.tolist(), best.tolist(), strict=True))


def best_under(mask: npt.NDArray[np.int32] | None) -> c.Choice:
    return c.Choice(mask=None if mask is None else mask.ctypes.data)


def mask_of(allowed: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
    words = -(-len(allowed) // 32)
    bits = np.zeros(32 * words, np.uint8)
    bits[: len(allowed)] = allowed
    return np.packbits(bits, bitorder="little").view(np.int32)


def choose_slowly(
    scores: npt.NDArray[np.float32], allowed: npt.NDArray[np.bool_]
) -> tuple[int, float]:
    best, token = -math.inf, 0
    for index, score in enumerate(scores.tolist()):
        if allowed[index] and score > best:
            best, token = score, index
    return token, best


@every_set
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_the_lowest_of_the_best_allowed_tokens_is_chosen(
    instruction_set: InstructionSet, data: st.DataObject
) -> None:
    vocab_size, num_rows = data.draw(st.integers(1, 130)), data.draw(st.integers(1, 3))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**31)))
    num_values = data.draw(st.sampled_from((1, 2, 5, 1000)))  # ties, or hardly any
    scores = (rng.integers(0, num_values, (num_rows, vocab_size)) - 2.5).astype(np.float32)
    share = data.draw(st.sampled_from((0.0, 0.05, 0.5, 1.0)))
    allowed = rng.random((num_rows, vocab_size)) < share
    is_masked = data.draw(st.lists(st.booleans(), min_size=num_rows, max_size=num_rows))
    masks = [
        mask_of(row) if masked else None for row, masked in zip(allowed, is_masked, strict=True)
    ]
    allowed[~np.array(is_masked)] = True
    found = choose(built_library(instruction_set), scores, [best_under(mask) for mask in masks])
    assert found == [choose_slowly(*row) for row in zip(scores, allowed, strict=True)]


@every_set
@pytest.mark.parametrize("vocab_size", [16, 17, 70])
def test_what_is_minus_infinity_or_no_number_is_never_chosen(
    instruction_set: InstructionSet, vocab_size: int
) -> None:
    library = built_library(instruction_set)
    for excluded in (NOTHING, np.float32(math.nan)):
        scores = np.full((2, vocab_size), excluded)
        scores[1, vocab_size - 1] = -1e30
        for temperature in (0.0, 0.5):
            one = c.Choice(temperature=temperature, top_p=1.0)
            (_, nothing), (token, _) = choose(library, scores, [one, one])
            assert (nothing, token) == (-math.inf, vocab_size - 1)


@every_set
def test_bits_of_a_mask_beyond_the_vocabulary_have_no_effect(
    instruction_set: InstructionSet,
) -> None:
    scores = np.arange(70, dtype=np.float32)[None]
    allowed = np.zeros(96, np.bool_)
    allowed[[3, 69, 70, 95]] = True
    library, mask = built_library(instruction_set), mask_of(allowed)
    assert choose(library, scores, [best_under(mask)]) == [(69, 69.0)]
    allowed[69] = False
    mask = mask_of(allowed)
    assert choose(library, scores, [best_under(mask)]) == [(3, 3.0)]


@every_set
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_a_drawn_token_is_the_references(
    instruction_set: InstructionSet, data: st.DataObject
) -> None:
    """But where two tokens are as good up to the last bits of a logarithm."""
    vocab_size = data.draw(st.integers(1, 200))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**31)))
    temperature = data.draw(st.sampled_from((1e-3, 0.3, 1.0, 7.5)))
    scores = (3 * rng.standard_normal((1, vocab_size))).astype(np.float32)
    allowed = rng.random(vocab_size) < data.draw(st.sampled_from((0.1, 0.5, 1.0)))
    mask = mask_of(allowed)
    key = noise_key(data.draw(st.integers(0, 2**63 - 1)), 1, data.draw(st.integers(0, 9)))
    choice = c.Choice(mask=mask.ctypes.data, temperature=temperature, key=key, top_p=1.0)
    ((token, score),) = choose(built_library(instruction_set), scores, [choice])
    noise = gumbel_noise(
        torch.tensor([key], dtype=torch.int32), torch.arange(vocab_size, dtype=torch.int32)
    )[0]
    noisy = torch.from_numpy(scores[0]) / temperature + noise
    noisy[~torch.from_numpy(allowed)] = -math.inf
    if not allowed.any():
        assert score == -math.inf
    else:
        best = float(noisy.max())
        assert score == pytest.approx(best, rel=2e-6, abs=2e-6)
        assert float(noisy[token]) == pytest.approx(best, rel=4e-6, abs=4e-6)


FILTERS = st.fixed_dictionaries(
    {
        "top_k": st.sampled_from((0, 1, 3, 40, 10_000)),
        "top_p": st.sampled_from((1e-6, 0.3, 0.9, 0.999, 1.0)),
        "min_p": st.sampled_from((0.0, 1e-6, 0.1, 1.0)),
    }
)


@every_set
@settings(max_examples=100, deadline=None, derandomize=True)
@given(data=st.data(), filters=FILTERS, temperature=st.sampled_from((0.1, 1.0, 7.5)))
def test_a_filtered_token_is_the_references(
    instruction_set: InstructionSet,
    data: st.DataObject,
    filters: dict[str, Any],
    temperature: float,
) -> None:
    """Wide and flat distributions too, whose nucleus is found far below the best score."""
    vocab_size = data.draw(st.sampled_from((1, 15, 100, 3000)))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**31)))
    width = data.draw(st.sampled_from((0.5, 3.0, 12.0)))
    scores = (width * rng.standard_normal((1, vocab_size))).astype(np.float32)
    allowed = rng.random(vocab_size) < data.draw(st.sampled_from((0.1, 1.0)))
    allowed[rng.integers(vocab_size)] = True
    mask = mask_of(allowed)
    keys = [noise_key(seed, 0, 0) for seed in range(20)]
    choices = [
        c.Choice(mask=mask.ctypes.data, temperature=temperature, key=key, **filters) for key in keys
    ]
    repeated = np.repeat(scores, len(keys), axis=0)
    found = [token for token, _ in choose(built_library(instruction_set), repeated, choices)]
    masked = torch.from_numpy(np.where(allowed, scores[0], NOTHING))
    sampling = Sampling(max_tokens=1, temperature=temperature, **filters)
    kept, token_ids = pick_candidates(masked / temperature, sampling)
    noise = gumbel_noise(torch.tensor(keys, dtype=torch.int32), token_ids.int())
    assert found == token_ids[(kept + noise).argmax(-1)].tolist()


class Pages:
    """Six pages of one layer, with random keys and values in them."""

    def __init__(self, library: Any, *, num_kv_heads: int, head_dim: int, page_size: int) -> None:
        self._library = library
        self.shape = (page_size, num_kv_heads, head_dim)
        memory = [torch.zeros(6, math.prod(self.shape), dtype=torch.bfloat16) for _ in range(2)]
        self._memory = memory  # the structure points to it
        self._kv = c.PagedKv(
            memory[0].data_ptr(), memory[1].data_ptr(), num_kv_heads, head_dim, page_size
        )
        self.keys, self.values = (
            torch.randn(6, *self.shape, generator=torch.Generator().manual_seed(seed))
            for seed in (1, 2)
        )
        self.write(range(6), self.keys, self.values)

    def write(self, pages: Any, keys: torch.Tensor, values: torch.Tensor) -> None:
        ids = np.array(pages, np.int32)
        self._library.rg_write_pages(
            ctypes.byref(self._kv), ids.ctypes.data, len(ids), keys.data_ptr(), values.data_ptr()
        )

    def read(self, pages: Any) -> tuple[torch.Tensor, torch.Tensor]:
        ids = np.array(pages, np.int32)
        keys, values = torch.full((2, len(ids), *self.shape), math.nan)
        self._library.rg_read_pages(
            ctypes.byref(self._kv), ids.ctypes.data, len(ids), keys.data_ptr(), values.data_ptr()
        )
        return keys, values

    def copy(self, source: int, target: int, num_slots: int) -> None:
        self._library.rg_copy_slots(ctypes.byref(self._kv), source, target, num_slots)


PAGE_SHAPES = [
    {"num_kv_heads": 1, "head_dim": 16, "page_size": 16},
    {"num_kv_heads": 3, "head_dim": 80, "page_size": 48},
]


def rounded(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.bfloat16().float()


@every_set
@pytest.mark.parametrize("shape", PAGE_SHAPES, ids=str)
def test_pages_are_read_as_they_were_written_in_bfloat16(
    instruction_set: InstructionSet, shape: dict[str, int]
) -> None:
    pages = Pages(built_library(instruction_set), **shape)
    order = [4, 0, 5]
    keys, values = pages.read(order)
    assert torch.equal(keys, rounded(pages.keys[order]))
    assert torch.equal(values, rounded(pages.values[order]))


@every_set
def test_writing_some_pages_leaves_the_others(instruction_set: InstructionSet) -> None:
    pages = Pages(built_library(instruction_set), **PAGE_SHAPES[1])
    pages.write([3, 1], pages.values[:2].contiguous(), pages.keys[:2].contiguous())
    keys, values = pages.read([1, 3, 0, 2, 4, 5])
    assert torch.equal(keys[:2], rounded(pages.values[[1, 0]]))
    assert torch.equal(values[:2], rounded(pages.keys[[1, 0]]))
    assert torch.equal(keys[2:], rounded(pages.keys[[0, 2, 4, 5]]))
    assert torch.equal(values[2:], rounded(pages.values[[0, 2, 4, 5]]))


@every_set
@pytest.mark.parametrize("shape", PAGE_SHAPES, ids=str)
def test_copied_slots_are_the_sources_and_the_rest_the_targets(
    instruction_set: InstructionSet, shape: dict[str, int]
) -> None:
    for num_slots in range(1, shape["page_size"] + 1):
        pages = Pages(built_library(instruction_set), **shape)
        pages.copy(4, 1, num_slots)
        for found, written in zip(pages.read(range(6)), (pages.keys, pages.values), strict=True):
            expected = rounded(written)
            expected[1, :num_slots] = expected[4, :num_slots]
            assert torch.equal(found, expected), num_slots
