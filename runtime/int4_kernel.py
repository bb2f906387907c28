"""Few rows times weights of 4 bits, by torch's own CPU kernel: what is fast without a compiler.

Weights are the file's own levels; their scales and minima are rounded to bfloat16, which costs no
more than rounding the weights themselves.
"""

import torch
from torch import Tensor

from runtime.linear import Kernel
from runtime.native.blocks import BLOCK_LEN, Blocks, exact_part, stack_blocks
from runtime.weight_map import Matrix
from runtime.weights import WeightReader

_OUTPUT_MULTIPLE = 64  # of the outputs, for torch's packed layout
_INNER_TILES = 2  # ignored on a CPU, must be given
_ZERO_LEVEL = 8  # the kernel's weight is (level - 8) * scale + zero


def int4_kernel(reader: WeightReader, parts: Matrix) -> Kernel | None:
    """None where a part of the matrix is not stored in 4 bits, or its size does not fit."""
    blocks = [exact_part(reader, part) for part in parts]
    if not all(part is not None and part.bits == 4 for part in blocks):
        return None
    matrix = stack_blocks([part for part in blocks if part is not None])
    return None if matrix.levels.shape[0] % _OUTPUT_MULTIPLE else _kernel(matrix)


def _kernel(matrix: Blocks) -> Kernel:
    levels = matrix.levels.flatten(1).to(torch.int32)
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(levels, _INNER_TILES)
    zeros = matrix.minima + _ZERO_LEVEL * matrix.scales
    # [B, N, 2]
    scales_and_zeros = torch.stack((matrix.scales.T, zeros.T), dim=-1).bfloat16().contiguous()

    def multiply(x: Tensor) -> Tensor:
        """x: [M, K] bfloat16 -> [M, N] bfloat16."""
        product: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(
            x, packed, BLOCK_LEN, scales_and_zeros
        )
        return product

    return multiply
