"""Dequantizing gives the very bits of the gguf package, for every type that it can decode."""

import subprocess
import sys

import gguf
import numpy as np
import numpy.typing as npt
import pytest
import torch
from gguf.quants import _type_traits

from runtime.dequantize import dequantize, is_supported, supported_types
from runtime.gguf_types import TENSOR_TYPES

BLOCK_BYTES = {kind.name: kind.block_bytes for kind in TENSOR_TYPES.values()}
# Byte offsets of the float16 numbers in a block of the types with torch decoders.
HALVES = {
    "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,),
    "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,),
}  # fmt: skip
# Zeros, the smallest and largest subnormal, the smallest normal, the largest: of both signs.
EXTREMES = np.array([0.0, 6e-8, 6.097e-5, 6.104e-5, 65504.0], dtype=np.float16)


def random_blocks(name: str, num_blocks: int) -> npt.NDArray[np.uint8]:
    """[num_blocks, block_bytes] of any bytes, as no value of them is forbidden."""
    rng = np.random.default_rng(sum(name.encode()))
    return rng.integers(0, 256, (num_blocks, BLOCK_BYTES[name]), dtype=np.uint8)


def expected_weights(blocks: npt.NDArray[np.uint8], name: str) -> torch.Tensor:
    with np.errstate(all="ignore"):
        decoded = gguf.dequantize(blocks, gguf.GGMLQuantizationType[name])
    return torch.from_numpy(decoded.reshape(-1).copy())


def our_weights(blocks: npt.NDArray[np.uint8], name: str) -> torch.Tensor:
    return dequantize(torch.from_numpy(blocks.reshape(-1).copy()), name).float()


def assert_same_bits(ours: torch.Tensor, expected: torch.Tensor) -> None:
    finite = ~expected.isnan()
    assert torch.equal(finite, ~ours.isnan())
    assert torch.equal(ours[finite].view(torch.int32), expected[finite].view(torch.int32))


@pytest.mark.parametrize("name", supported_types())
def test_any_bytes_decode_to_the_references_bits(name: str) -> None:
    blocks = random_blocks(name, 257)
    assert_same_bits(our_weights(blocks, name), expected_weights(blocks, name))


@pytest.mark.parametrize("name", sorted(HALVES))
def test_tiny_huge_and_negative_scales_decode_to_the_references_bits(name: str) -> None:
    values = np.concatenate((EXTREMES, -EXTREMES))
    pairs = np.stack(np.meshgrid(values, values), axis=-1).reshape(-1, 2)
    blocks = random_blocks(name, len(pairs))
    for column, start in enumerate(HALVES[name]):
        blocks[:, start : start + 2] = pairs[:, column : column + 1].copy().view(np.uint8)
    expected = expected_weights(blocks, name)
    assert torch.isfinite(expected).all()
    assert (expected < 0).any()
    assert_same_bits(our_weights(blocks, name), expected)


@pytest.mark.parametrize("name", ["Q4_0", "Q6_K", "IQ4_XS"])
def test_a_tensor_longer_than_a_slice_is_decoded_whole(name: str) -> None:
    one = random_blocks(name, 1)
    weights = our_weights(np.tile(one, (9000, 1)), name).view(9000, -1)
    alone = our_weights(one, name)
    bits = weights.view(torch.int32)
    assert torch.equal(bits, alone.view(torch.int32).expand_as(bits))


def test_all_types_that_the_package_decodes_can_be_read_and_no_other() -> None:
    decodable = {kind.name for kind in _type_traits} | {"F32", "F16"}
    assert set(supported_types()) == decodable
    assert {name for name in BLOCK_BYTES if is_supported(name)} == decodable
    assert not is_supported("Q8_K")


def test_the_table_of_types_is_the_packages() -> None:
    theirs = {
        int(kind): (kind.name, *sizes) for kind, sizes in gguf.constants.GGML_QUANT_SIZES.items()
    }
    ours = {
        number: (kind.name, kind.block_len, kind.block_bytes)
        for number, kind in TENSOR_TYPES.items()
    }
    assert ours == theirs


@pytest.mark.parametrize(("name", "is_loaded"), [("Q4_K", False), ("Q2_K", True)])
def test_the_package_is_loaded_only_for_types_that_need_it(name: str, is_loaded: bool) -> None:
    program = (
        "import sys, torch, runtime.weights\nfrom runtime.dequantize import dequantize\n"
        f"dequantize(torch.zeros({BLOCK_BYTES[name]}, dtype=torch.uint8), {name!r})\n"
        "print('gguf' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{is_loaded}\n"
