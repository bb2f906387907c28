"""Weights as the native step holds them: blocks of 32 with an unsigned level each, w = d * u + m.

The common types of GGUF files fit this without loss; everything else is quantized anew to 8 bits.
Letters: N rows (outputs), K columns (inputs), B = K / 32 blocks of a row.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from runtime.dequantize import halves, nibbles, scales_and_minima, unpack_groups
from runtime.weight_map import MatrixPart
from runtime.weight_parts import undo_rotary_interleave
from runtime.weights import StoredTensor, WeightReader

BLOCK_LEN = 32
_MAX_LEVEL = 255


@dataclass(frozen=True, slots=True)
class Blocks:
    """A matrix. levels: [N, B, 32] uint8, below 2^bits; scales and minima: [N, B] float32.

    `bits` is 4 or 8.
    """

    bits: int
    levels: Tensor
    scales: Tensor
    minima: Tensor

    def rows(self, order: Tensor) -> "Blocks":
        """The rows in this order. order: [M] long."""
        return Blocks(self.bits, self.levels[order], self.scales[order], self.minima[order])

    def to_floats(self) -> Tensor:
        """[N, 32 * B] float32."""
        return (self.levels * self.scales[..., None] + self.minima[..., None]).flatten(1)


def stack_blocks(parts: list[Blocks]) -> Blocks:
    """The rows of all parts, one after the other, with the most bits that a part needs."""
    return Blocks(
        max(part.bits for part in parts),
        torch.cat([part.levels for part in parts]),
        torch.cat([part.scales for part in parts]),
        torch.cat([part.minima for part in parts]),
    )


def quantize_rows(weights: Tensor) -> Blocks:
    """weights: [N, K] of any floating dtype -> 8-bit blocks between each block's least and
    greatest weight. K that is no multiple of 32 is filled up with zeros."""
    weights = pad_columns(weights.float())
    blocks = weights.view(weights.shape[0], -1, BLOCK_LEN)
    least, greatest = blocks.amin(-1), blocks.amax(-1)
    scales = (greatest - least) / _MAX_LEVEL
    safe = torch.where(scales > 0, scales, torch.ones_like(scales))
    levels = ((blocks - least[..., None]) / safe[..., None]).round_().clamp_(0, _MAX_LEVEL)
    return Blocks(8, levels.to(torch.uint8), scales, least)


def pad_columns(weights: Tensor) -> Tensor:
    """[N, K] -> [N, the next multiple of 32], with zeros."""
    return torch.nn.functional.pad(weights, (0, -weights.shape[1] % BLOCK_LEN))


def exact_blocks(stored: StoredTensor) -> Blocks | None:
    """The blocks of a stored matrix, where its type has this form; else None.

    Scales are the file's numbers; only Q4_K's are products of two, rounded to float32.
    """
    convert = _CONVERTERS.get(stored.type_name)
    if convert is None:
        return None
    num_rows = stored.data.shape[0]
    bits, levels, scales, minima = convert(stored.data.flatten())
    return Blocks(
        bits,
        levels.view(num_rows, -1, BLOCK_LEN),
        scales.reshape(num_rows, -1),
        minima.reshape(num_rows, -1),
    )


def exact_part(reader: WeightReader, part: MatrixPart) -> Blocks | None:
    """As exact_blocks, of one part of a weight map; None too where the files hold no blocks."""
    stored = reader.stored(part.tensor)
    blocks = exact_blocks(_rows_of(stored, part)) if stored is not None else None
    if blocks is None or part.interleaved_head_dim is None:
        return blocks
    order = torch.arange(blocks.levels.shape[0])
    return blocks.rows(undo_rotary_interleave(order, head_dim=part.interleaved_head_dim))


def _rows_of(stored: StoredTensor, part: MatrixPart) -> StoredTensor:
    """The rows of a stored tensor that a part takes."""
    data = stored.data
    if part.expert is not None:
        num_rows = stored.shape[1]
        data = data[part.expert * num_rows : (part.expert + 1) * num_rows]
    if part.rows is not None:
        data = data[slice(*part.rows)]
    return StoredTensor(stored.type_name, (data.shape[0], stored.shape[-1]), data)


# bits, levels [*, 32] uint8, scales and minima [*] float32
_Parts = tuple[int, Tensor, Tensor, Tensor]


def _q4_0(data: Tensor) -> _Parts:
    blocks = data.view(-1, 18)
    scales = halves(blocks, 0)
    return 4, _levels(blocks[:, 2:]), scales, scales * -8


def _q4_1(data: Tensor) -> _Parts:
    blocks = data.view(-1, 20)
    return 4, _levels(blocks[:, 4:]), halves(blocks, 0), halves(blocks, 2)


def _q8_0(data: Tensor) -> _Parts:
    blocks = data.view(-1, 34)
    scales = halves(blocks, 0)
    return 8, blocks[:, 2:] ^ 128, scales, scales * -128


def _q4_k(data: Tensor) -> _Parts:
    blocks = data.view(-1, 144)
    scales, minima = scales_and_minima(blocks[:, 4:16])
    levels = torch.empty(blocks.shape[0], 256, dtype=torch.uint8)
    unpack_groups(blocks[:, 16:], levels)
    return 4, levels, halves(blocks, 0) * scales, halves(blocks, 2) * minima * -1


def _levels(packed: Tensor) -> Tensor:
    levels = torch.empty(packed.shape[0], BLOCK_LEN, dtype=torch.uint8)
    nibbles(packed, levels)
    return levels


_CONVERTERS: Mapping[str, Callable[[Tensor], _Parts]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q8_0": _q8_0,
    "Q4_K": _q4_k,
}
