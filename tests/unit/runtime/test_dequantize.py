"""Dequantizing gives the very bits of the gguf package."""

import gguf
import numpy as np
import pytest
import torch

from runtime.dequantize import dequantize, is_supported

TYPES = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q8_0")


@pytest.mark.parametrize("name", TYPES)
def test_weights_equal_the_reference_bit_for_bit(name: str) -> None:
    weights = np.random.default_rng(0).standard_normal((7, 96)).astype(np.float32)
    weights[0, :32] = 0.0
    kind = gguf.GGMLQuantizationType[name]
    stored = gguf.quantize(weights, kind)
    ours = dequantize(torch.from_numpy(stored.view(np.uint8).reshape(-1).copy()), name)
    expected = torch.from_numpy(gguf.dequantize(stored, kind).copy())
    assert torch.equal(ours.float().view(7, 96), expected)


def test_other_types_are_not_claimed() -> None:
    assert all(is_supported(name) for name in TYPES)
    assert not is_supported("Q4_K")
