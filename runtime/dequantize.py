"""Turns ggml's stored blocks into weights, with torch so that all cores work.

The arithmetic and its order are ggml's, so the float32 results are the reference's bits.
B = blocks. A block holds 32 weights; a 4-bit byte holds weight i (low) and i + 16 (high).
"""

from collections.abc import Callable

import torch
from torch import Tensor

BLOCK_LEN = 32


def is_supported(type_name: str) -> bool:
    """Whether tensors stored as this ggml type can be read."""
    return type_name in _DECODERS


def dequantize(stored: Tensor, type_name: str) -> Tensor:
    """stored: [num_bytes] uint8 -> [num_weights], float32 except for F16 and BF16 storage."""
    return _DECODERS[type_name](stored)


def _plain(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    return lambda stored: stored.view(dtype)


def _halves(blocks: Tensor, start: int) -> Tensor:
    """The float16 at byte `start` of each block, as [B, 1] float32."""
    return blocks[:, start : start + 2].contiguous().view(torch.float16).float()


def _nibbles(packed: Tensor) -> Tensor:
    """packed: [B, 16] uint8 -> [B, 32] float32 of 0 to 15."""
    weights = torch.empty(packed.shape[0], BLOCK_LEN, dtype=torch.float32)
    weights[:, :16] = packed & 15
    weights[:, 16:] = packed >> 4
    return weights


def _q4_0(stored: Tensor) -> Tensor:
    blocks = stored.view(-1, 18)
    return _nibbles(blocks[:, 2:]).sub_(8).mul_(_halves(blocks, 0)).view(-1)


def _q4_1(stored: Tensor) -> Tensor:
    blocks = stored.view(-1, 20)
    return _nibbles(blocks[:, 4:]).mul_(_halves(blocks, 0)).add_(_halves(blocks, 2)).view(-1)


def _q8_0(stored: Tensor) -> Tensor:
    blocks = stored.view(-1, 34)
    return blocks[:, 2:].view(torch.int8).float().mul_(_halves(blocks, 0)).view(-1)


_DECODERS: dict[str, Callable[[Tensor], Tensor]] = {
    "F32": _plain(torch.float32),
    "F16": _plain(torch.float16),
    "BF16": _plain(torch.bfloat16),
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q8_0": _q8_0,
}
