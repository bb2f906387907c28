"""torch's kernel for weights of 4 bits gives what the dequantized weights give."""

from collections.abc import Mapping

import gguf
import numpy as np
import pytest
import torch

from runtime.int4_kernel import int4_kernel
from runtime.linear import MAX_FEW_ROWS, Linear
from runtime.weight_map import MatrixPart
from runtime.weight_parts import read_part
from runtime.weights import StoredTensor

COLUMNS = 96


class Files:
    """A reader of tensors that are quantized here."""

    def __init__(self, **types: tuple[str, int]) -> None:
        rng = np.random.default_rng(3)
        self._stored = {}
        for name, (type_name, num_rows) in types.items():
            weights = rng.standard_normal((num_rows, COLUMNS)).astype(np.float32)
            kind = gguf.GGMLQuantizationType[type_name]
            data = torch.from_numpy(gguf.quants.quantize(weights, kind))
            self._stored[name] = StoredTensor(type_name, (num_rows, COLUMNS), data)

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {name: stored.shape for name, stored in self._stored.items()}

    def stored(self, name: str) -> StoredTensor:
        return self._stored[name]

    def read(self, name: str) -> torch.Tensor:
        stored = self._stored[name]
        kind = gguf.GGMLQuantizationType[stored.type_name]
        return torch.from_numpy(gguf.quants.dequantize(stored.data.numpy(), kind))

    def read_rows(self, name: str, start: int, stop: int) -> torch.Tensor:
        return self.read(name)[start:stop]


@pytest.mark.parametrize("type_name", ["Q4_0", "Q4_1"])
@pytest.mark.parametrize("num_rows", range(1, MAX_FEW_ROWS + 1))
def test_few_rows_get_what_the_dequantized_weights_give(type_name: str, num_rows: int) -> None:
    files = Files(q=(type_name, 64), k=(type_name, 128))
    parts = (MatrixPart("q", interleaved_head_dim=16), MatrixPart("k", rows=(0, 64)))
    kernel = int4_kernel(files, parts)
    assert kernel is not None
    weight = torch.cat([read_part(files, part) for part in parts])
    x = torch.randn(num_rows, COLUMNS, generator=torch.Generator().manual_seed(1)).bfloat16()
    exact = x.float() @ weight.T
    rounding = (x @ weight.bfloat16().T).float() - exact  # what bfloat16 weights cost
    assert (kernel(x).float() - exact).abs().max() < 2 * rounding.abs().max()


def test_matrices_of_other_types_or_sizes_have_no_such_kernel() -> None:
    files = Files(four=("Q4_1", 64), eight=("Q8_0", 64), odd=("Q4_1", 40))
    assert int4_kernel(files, (MatrixPart("four"), MatrixPart("eight"))) is None
    assert int4_kernel(files, (MatrixPart("odd"),)) is None


def test_the_number_of_rows_decides_the_kernel() -> None:
    linear = Linear(torch.eye(3), few_rows=lambda x: x + 100)
    assert linear(torch.zeros(MAX_FEW_ROWS, 3)).min() == 100
    assert linear(torch.zeros(MAX_FEW_ROWS + 1, 3)).max() == 0
