"""Damage that a file's header does not show is found when its tensors are read."""

import math
from pathlib import Path

import gguf
import pytest
import torch
from safetensors.torch import load_file, save_file

from runtime.dequantize import dequantize
from runtime.errors import ModelError
from runtime.gguf_types import TENSOR_TYPES
from runtime.model_source import open_model
from runtime.weight_checks import find_damage, find_wrong_number
from runtime.weights import open_weights
from tests.tiny_gguf import write_tiny_gguf
from tests.tiny_model import write_tiny_model

BLOCKS = {kind.name: kind.block_bytes for kind in TENSOR_TYPES.values()}
SCALED = (
    "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K",
    "IQ4_NL", "IQ4_XS",
)  # fmt: skip


def damage(data: torch.Tensor, name: str, *, is_matrix: bool = True) -> str | None:
    return find_damage(data, name, block_bytes=BLOCKS[name], is_matrix=is_matrix)


@pytest.mark.parametrize("name", SCALED)
def test_a_scale_that_makes_wrong_weights_is_found_wherever_it_lies(name: str) -> None:
    """Each pair of bytes in turn becomes an infinite float16: what makes a weight infinite or no
    number is found, and nothing else is."""
    found = set()
    for at in range(BLOCKS[name] - 1):
        data = torch.full((5, BLOCKS[name]), 17, dtype=torch.uint8)
        data[3, at : at + 2] = torch.tensor([0x00, 0x7C], dtype=torch.uint8)
        is_wrong = not dequantize(data.view(-1), name).isfinite().all()
        assert (damage(data.view(-1), name) is not None) == is_wrong
        found.add(is_wrong)
    assert found == {True, False}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_weight_that_is_no_number_is_found(dtype: torch.dtype, value: float) -> None:
    weights = torch.ones(1000, dtype=dtype)
    assert find_wrong_number(weights) is None
    weights[500] = value
    assert find_wrong_number(weights) == "has a weight that is no number"


def test_weights_whose_sum_is_too_large_are_numbers() -> None:
    assert find_wrong_number(torch.full((100,), 3e38)) is None


def test_a_matrix_of_zeros_is_found_and_one_with_a_single_byte_is_not() -> None:
    data = torch.zeros(34 * 300, dtype=torch.uint8)
    assert damage(data, "Q8_0") == "holds nothing but zeros"
    assert damage(data, "Q8_0", is_matrix=False) is None
    data[34 * 150 + 5] = 1
    assert damage(data, "Q8_0") is None


def test_a_gguf_file_whose_end_was_never_written_is_refused(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "half.gguf")
    last = max(gguf.GGUFReader(str(path)).tensors, key=lambda tensor: tensor.data_offset)
    content = bytearray(path.read_bytes())
    content[last.data_offset :] = bytes(len(content) - last.data_offset)
    path.write_bytes(content)
    with pytest.raises(ModelError, match=f"{last.name}' holds nothing but zeros: the file is dam"):
        open_weights(open_model(path)).read(last.name)


def test_a_folder_with_weights_that_are_no_numbers_is_refused(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path / "tiny")
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors["lm_head.weight"].index_fill(0, torch.tensor(7), math.nan)
    save_file(tensors, folder / "model.safetensors")
    reader = open_weights(open_model(folder))
    assert reader.read_rows("lm_head.weight", 8, 16).isfinite().all()
    message = r"safetensors: tensor 'lm_head.weight' has a weight that is no number"
    with pytest.raises(ModelError, match=message):
        reader.read("lm_head.weight")
    with pytest.raises(ModelError, match=message):
        reader.read_rows("lm_head.weight", 0, 8)
