"""Weights as blocks of 32: exact where the file's type has that form, else within half a step."""

import numpy as np
import pytest
import torch

from runtime.dequantize import dequantize
from runtime.gguf_types import TENSOR_TYPES
from runtime.native.blocks import Blocks, exact_blocks, pad_columns, quantize_rows, stack_blocks
from runtime.weights import StoredTensor

TYPES = {kind.name: kind for kind in TENSOR_TYPES.values()}
# Byte offsets of the float16 numbers in a block of each type.
HALVES = {"Q4_0": (0,), "Q4_1": (0, 2), "Q8_0": (0,), "Q4_K": (0, 2)}
# Zero, the smallest and largest subnormal, the smallest normal, the largest: of both signs.
EXTREMES = np.array([0.0, 6e-8, 6.097e-5, 6.104e-5, 65504.0], dtype=np.float16)
NUM_ROWS = 7


def random_tensor(name: str, *, seed: int = 0) -> StoredTensor:
    """Any bytes, with finite scales and minima of which some are extreme. Rows of three blocks."""
    rng = np.random.default_rng(seed)
    kind = TYPES[name]
    blocks = rng.integers(0, 256, (NUM_ROWS * 3, kind.block_bytes), dtype=np.uint8)
    for start in HALVES[name]:
        scales = rng.standard_normal(len(blocks)).astype(np.float16)
        scales[:10] = rng.permutation(np.concatenate((EXTREMES, -EXTREMES)))
        blocks[:, start : start + 2] = scales[:, None].view(np.uint8)
    data = torch.from_numpy(blocks.reshape(NUM_ROWS, -1))
    return StoredTensor(name, (NUM_ROWS, 3 * kind.block_len), data)


def random_blocks(num_rows: int, *, bits: int, num_blocks: int = 3, seed: int = 0) -> Blocks:
    generator = torch.Generator().manual_seed(seed)
    shape = (num_rows, num_blocks)
    levels = torch.randint(0, 2**bits, (*shape, 32), generator=generator, dtype=torch.uint8)
    return Blocks(
        bits,
        levels,
        torch.rand(shape, generator=generator),
        torch.randn(shape, generator=generator),
    )


@pytest.mark.parametrize("name", sorted(HALVES))
@pytest.mark.parametrize("seed", range(3))
def test_exact_blocks_are_the_dequantized_weights_to_the_bit(name: str, seed: int) -> None:
    stored = random_tensor(name, seed=seed)
    blocks = exact_blocks(stored)
    assert blocks is not None
    assert blocks.bits == (8 if name == "Q8_0" else 4)
    assert int(blocks.levels.max()) == 2**blocks.bits - 1
    expected = dequantize(stored.data.flatten(), name).view(stored.shape)
    assert expected.abs().max() > 65504
    assert torch.equal(blocks.to_floats(), expected)


@pytest.mark.parametrize("name", ["F32", "F16", "BF16", "Q6_K", "Q5_0", "IQ4_NL"])
def test_other_types_have_no_exact_blocks(name: str) -> None:
    data = torch.zeros(2, TYPES[name].block_bytes * 32, dtype=torch.uint8)
    assert exact_blocks(StoredTensor(name, (2, 32 * TYPES[name].block_len), data)) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("num_columns", [1, 31, 32, 80, 96])
def test_quantized_weights_are_within_half_a_step_of_their_block(
    dtype: torch.dtype, num_columns: int
) -> None:
    magnitudes = 10.0 ** torch.linspace(-4, 3, 9)[:, None]
    noise = torch.randn(9, num_columns, generator=torch.Generator().manual_seed(1))
    weights = (noise * magnitudes).to(dtype)
    blocks = quantize_rows(weights)
    padded = pad_columns(weights.float()).view(9, -1, 32)
    steps = (padded.amax(-1) - padded.amin(-1)) / 255
    errors = (blocks.to_floats().view(padded.shape) - padded).abs().amax(-1)
    rounding = 1e-6 * padded.abs().amax(-1)
    assert (errors <= steps / 2 + rounding).all()
    assert blocks.bits == 8


def test_a_block_of_equal_weights_is_exact() -> None:
    weights = torch.tensor([[0.3] * 32 + [-7.5] * 32, [0.0] * 64])
    assert torch.equal(quantize_rows(weights).to_floats(), weights)


def test_the_ends_of_a_block_use_all_levels() -> None:
    blocks = quantize_rows(torch.linspace(-2.0, 3.0, 32)[None])
    assert (int(blocks.levels.min()), int(blocks.levels.max())) == (0, 255)


def test_columns_are_filled_up_to_whole_blocks_with_zeros() -> None:
    padded = pad_columns(torch.ones(2, 33))
    assert padded.shape == (2, 64)
    assert padded.sum() == 66
    assert pad_columns(torch.ones(2, 32)).shape == (2, 32)
    assert quantize_rows(torch.ones(2, 33)).levels.shape == (2, 2, 32)


@pytest.mark.parametrize(("bits", "stacked_bits"), [((4, 8), 8), ((4, 4), 4), ((8, 4, 8), 8)])
def test_stacked_parts_keep_their_weights(bits: tuple[int, ...], stacked_bits: int) -> None:
    parts = [random_blocks(3 + i, bits=each, seed=i) for i, each in enumerate(bits)]
    stacked = stack_blocks(parts)
    assert stacked.bits == stacked_bits
    assert torch.equal(stacked.to_floats(), torch.cat([part.to_floats() for part in parts]))


def test_rows_are_taken_in_the_order_asked_for() -> None:
    blocks = random_blocks(5, bits=4)
    order = torch.tensor([4, 0, 0, 2])
    assert torch.equal(blocks.rows(order).to_floats(), blocks.to_floats()[order])
    assert blocks.rows(order).bits == 4
