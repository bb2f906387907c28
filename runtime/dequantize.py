"""Turns ggml's stored blocks into weights: the common types with torch so that all cores work,
the rare ones with the gguf package (75 to 100 million weights a second).

The arithmetic and its order are ggml's, so the float32 results are the reference's bits. Work
goes slice by slice, so that what lies between stored bytes and weights stays in the cache.
B = blocks; a block's weights are written to `out`, [B, block_len] float32.
"""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from runtime.gguf_types import TENSOR_TYPES

# Weights decoded at a time: 4 MiB of float32, the fastest of 2^18, 2^20 and 2^22 on one and two
# cores with 2 MiB of second-level cache each.
_SLICE_LEN = 1 << 20
# Types of weights that are stored as they are.
PLAIN_DTYPES: Mapping[str, torch.dtype] = {
    "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
}  # fmt: skip
_TYPES = {tensor_type.name: tensor_type for tensor_type in TENSOR_TYPES.values()}
_BlockDecoder = Callable[[Tensor, Tensor], None]


def is_supported(type_name: str) -> bool:
    """Whether tensors stored as this ggml type can be read."""
    return type_name in PLAIN_DTYPES or type_name in _DECODERS or type_name in _IN_PACKAGE


def supported_types() -> tuple[str, ...]:
    """The names of all types that can be read."""
    return (*PLAIN_DTYPES, *_DECODERS, *_IN_PACKAGE)


def dequantize(stored: Tensor, type_name: str) -> Tensor:
    """stored: [num_bytes] uint8, whole blocks -> [num_weights], float32 except for F16 and BF16
    storage, which are returned as they lie there."""
    plain = PLAIN_DTYPES.get(type_name)
    if plain is not None:
        return stored.view(plain)
    layout = _TYPES[type_name]
    blocks = stored.view(-1, layout.block_bytes)
    weights = torch.empty(blocks.shape[0], layout.block_len, dtype=torch.float32)
    decode = _DECODERS.get(type_name) or _package_decoder(type_name)
    num_blocks = max(1, _SLICE_LEN // layout.block_len)
    for start in range(0, blocks.shape[0], num_blocks):
        decode(blocks[start : start + num_blocks], weights[start : start + num_blocks])
    return weights.view(-1)


def halves(blocks: Tensor, start: int) -> Tensor:
    """The float16 at byte `start` of each block, as [B, 1] float32."""
    return blocks[:, start : start + 2].contiguous().view(torch.float16).float()


def nibbles(packed: Tensor, out: Tensor) -> None:
    """packed: [B, n] uint8, byte i holds weights i (low) and i + n (high) -> out: [B, 2 n]
    of any dtype."""
    half = packed.shape[1]
    out[:, :half] = packed & 15
    out[:, half:] = packed >> 4


def _q4_0(blocks: Tensor, out: Tensor) -> None:
    nibbles(blocks[:, 2:], out)
    out.sub_(8).mul_(halves(blocks, 0))


def _q4_1(blocks: Tensor, out: Tensor) -> None:
    nibbles(blocks[:, 4:], out)
    out.mul_(halves(blocks, 0)).add_(halves(blocks, 2))


def _fifth_bits(packed: Tensor) -> Tensor:
    """packed: [B, 4] uint8, 32 bits of which bit i belongs to weight i -> [B, 32] of 0 or 16."""
    shifts = torch.arange(8, dtype=torch.uint8)
    return packed[:, :, None].bitwise_right_shift(shifts).bitwise_and_(1).mul_(16).flatten(1)


def _q5_0(blocks: Tensor, out: Tensor) -> None:
    nibbles(blocks[:, 6:], out)
    out.add_(_fifth_bits(blocks[:, 2:6])).sub_(16).mul_(halves(blocks, 0))


def _q5_1(blocks: Tensor, out: Tensor) -> None:
    nibbles(blocks[:, 8:], out)
    out.add_(_fifth_bits(blocks[:, 4:8])).mul_(halves(blocks, 0)).add_(halves(blocks, 2))


def _q8_0(blocks: Tensor, out: Tensor) -> None:
    out.copy_(blocks[:, 2:].view(torch.int8))
    out.mul_(halves(blocks, 0))


def scales_and_minima(packed: Tensor) -> tuple[Tensor, Tensor]:
    """packed: [B, 12] uint8 -> two [B, 8] uint8 of 6 bits. The first four of each lie in the low
    bits of bytes 0 to 3 and 4 to 7; the last four have their low bits in the nibbles of bytes
    8 to 11 and their two high bits on top of the first four."""
    first, second, third = torch.split(packed, 4, dim=1)
    scales = torch.cat((first & 63, (third & 15) | ((first >> 2) & 48)), dim=1)
    minima = torch.cat((second & 63, (third >> 4) | ((second >> 2) & 48)), dim=1)
    return scales, minima


def _scale_groups(blocks: Tensor, out: Tensor) -> None:
    """Eight groups of 32 weights, each with a scale and a minimum; bytes 0 to 15 of a block."""
    scales, minima = scales_and_minima(blocks[:, 4:16])
    groups = out.view(-1, 8, 32)
    groups.mul_((halves(blocks, 0) * scales)[:, :, None])
    groups.sub_((halves(blocks, 2) * minima)[:, :, None])


def _q4_k(blocks: Tensor, out: Tensor) -> None:
    unpack_groups(blocks[:, 16:], out)
    _scale_groups(blocks, out)


def unpack_groups(packed: Tensor, out: Tensor) -> None:
    """packed: [B, 128] uint8; 32 bytes hold the low and the high nibbles of two groups."""
    pairs = packed.reshape(-1, 4, 32)
    groups = out.view(-1, 4, 2, 32)
    groups[:, :, 0] = pairs & 15
    groups[:, :, 1] = pairs >> 4


def _q5_k(blocks: Tensor, out: Tensor) -> None:
    unpack_groups(blocks[:, 48:], out)
    groups, high = out.view(-1, 8, 32), blocks[:, 16:48]
    for group in range(8):  # bit `group` of byte i is the fifth bit of the group's weight i
        groups[:, group].add_(((high >> group) & 1) << 4)
    _scale_groups(blocks, out)


def _q6_k(blocks: Tensor, out: Tensor) -> None:
    groups = out.view(-1, 2, 4, 32)  # two halves of four groups
    low = blocks[:, :128].reshape(-1, 2, 2, 32)
    high = blocks[:, 128:192].reshape(-1, 2, 32)
    for group in range(4):
        nibbles = low[:, :, group % 2]
        nibbles = nibbles & 15 if group < 2 else nibbles >> 4
        groups[:, :, group] = nibbles | (((high >> (2 * group)) & 3) << 4)
    scales = halves(blocks, 208) * blocks[:, 192:208].view(torch.int8)
    out.sub_(32).view(-1, 16, 16).mul_(scales[:, :, None])


_DECODERS: Mapping[str, _BlockDecoder] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}
# What gguf.quants decodes besides; a test compares the list with the package.
_IN_PACKAGE = (
    "Q2_K", "Q3_K", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S",
    "IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0", "MXFP4", "NVFP4",
)  # fmt: skip


def _package_decoder(type_name: str) -> _BlockDecoder:
    """The package is imported only here: files of the common types never wait for it (0.2 s)."""
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize as decode_rows

    kind = GGMLQuantizationType[type_name]

    def decode(blocks: Tensor, out: Tensor) -> None:
        # One long row, as the package's own loop over rows is slow for short ones.
        row = blocks.numpy().reshape(1, -1)
        with np.errstate(all="ignore"):
            out.copy_(torch.from_numpy(decode_rows(row, kind)).view_as(out))

    return decode
