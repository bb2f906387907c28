"""Loading weights: both kinds of files, and one line for each thing that can be wrong."""

import json
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from safetensors.torch import load_file, save_file

from runtime.decoder_weights import DecoderWeights, load_decoder_weights
from runtime.errors import ModelError
from runtime.model_source import open_model
from runtime.weights import open_weights
from tests.reference_model import load_reference_model
from tests.tiny_gguf import write_tiny_gguf
from tests.tiny_model import write_tiny_model

CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "tiny")


def load(path: Path, dtype: torch.dtype = torch.float32) -> DecoderWeights:
    return load_decoder_weights(open_model(path), dtype=dtype, device=CPU)


def rewrite(folder: Path, **changes: torch.Tensor | None) -> None:
    """Replaces, adds or (None) removes tensors; underscores stand for dots in the names."""
    file = folder / "model.safetensors"
    tensors = load_file(file) | {name: t for name, t in changes.items() if t is not None}
    for name in (name for name, tensor in changes.items() if tensor is None):
        del tensors[name]
    save_file(tensors, file)


def shard(folder: Path) -> list[Path]:
    """Splits the folder's weights over two files with an index."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    files = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, members in files.items():
        save_file({name: tensors[name] for name in members}, folder / file)
    weight_map = {name: file for file, members in files.items() for name in members}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return [folder / file for file in files]


def flat(weights: DecoderWeights) -> list[torch.Tensor]:
    tensors = [weights.embedding, weights.final_norm, weights.output.weight]
    for layer in weights.layers:
        tensors += [layer.attention_norm, layer.ffn_norm, layer.qkv.weight]
        tensors += [layer.attention_output.weight]
        tensors += [part.weight for ffn in layer.ffns for part in (ffn.gate_up, ffn.down)]
    return tensors


def test_gguf_weights_are_those_of_the_reference(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf")
    state: dict[str, Any] = load_reference_model(path).state_dict()
    weights = load(path)
    assert torch.equal(weights.embedding, state["model.embed_tokens.weight"])
    for index, layer in enumerate(weights.layers):
        prefix = f"model.layers.{index}."
        attention = [state[f"{prefix}self_attn.{x}_proj.weight"] for x in "qkv"]
        assert torch.equal(layer.qkv.weight, torch.cat(attention))
        assert torch.equal(layer.ffns[0].down.weight, state[f"{prefix}mlp.down_proj.weight"])


def test_a_tied_output_shares_the_embeddings_memory(tmp_path: Path) -> None:
    weights = load(write_tiny_gguf(tmp_path / "tiny.gguf"))
    assert weights.output.weight.data_ptr() == weights.embedding.data_ptr()


def test_shards_hold_the_same_weights_as_one_file(folder: Path) -> None:
    whole = flat(load(folder))
    shard(folder)
    assert all(torch.equal(a, b) for a, b in zip(whole, flat(load(folder)), strict=True))


def test_matrices_take_the_dtype_and_norms_stay_float32(folder: Path) -> None:
    weights = load(folder, torch.bfloat16)
    assert weights.layers[0].qkv.weight.dtype == torch.bfloat16
    assert weights.final_norm.dtype == torch.float32


def test_loaded_weights_outlive_the_file(folder: Path) -> None:
    weights = load(folder)
    before = [tensor.clone() for tensor in flat(weights)]
    (folder / "model.safetensors").write_bytes(b"")
    assert all(torch.equal(a, b) for a, b in zip(before, flat(weights), strict=True))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model.norm.weight": None}, "'model.norm.weight' is missing"),
        ({"model.norm.weight": torch.ones(63)}, r"'model.norm.weight' has shape \(63,\)"),
        (
            {"model.layers.0.self_attn.q_proj.bias": torch.ones(64)},
            "'model.layers.0.self_attn.q_proj.bias' is not part of a plain llama",
        ),
        (
            {"model.layers.2.mlp.up_proj.weight": torch.ones(128, 64)},
            "'model.layers.2.mlp.up_proj.weight' is not part",
        ),
        ({"model.norm.weight": torch.ones(64, dtype=torch.int8)}, "stored as torch.int8"),
    ],
)
def test_a_tensor_that_does_not_fit_is_named(
    folder: Path, changes: dict[str, torch.Tensor | None], named: str
) -> None:
    rewrite(folder, **changes)
    with pytest.raises(ModelError, match=named):
        load(folder)


def test_frequencies_that_follow_from_the_parameters_are_ignored(folder: Path) -> None:
    rewrite(folder, **{"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)})
    load(folder)


def test_a_damaged_shard_is_named(folder: Path) -> None:
    _, second = shard(folder)
    second.write_bytes(second.read_bytes()[:-100])
    with pytest.raises(ModelError, match=r"b\.safetensors: is damaged"):
        load(folder)


def test_a_missing_shard_is_named(folder: Path) -> None:
    first, _ = shard(folder)
    first.unlink()
    with pytest.raises(ModelError, match=r"a\.safetensors: this file of the model is missing"):
        load(folder)


def test_a_tensor_in_two_shards_is_an_error(folder: Path) -> None:
    first, second = shard(folder)
    save_file(load_file(second) | load_file(first), second)
    with pytest.raises(ModelError, match="is in another file of the model too"):
        load(folder)


def test_a_missing_gguf_tensor_is_named(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", drop="blk.1.ffn_up.weight")
    with pytest.raises(ModelError, match=r"'blk.1.ffn_up.weight' is missing"):
        load(path)


def test_a_gguf_bias_is_named(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", extra={"blk.0.ffn_up.bias": (128,)})
    with pytest.raises(ModelError, match=r"'blk.0.ffn_up.bias' is not part"):
        load(path)


@pytest.mark.parametrize("kind", ["gguf", "folder"])
def test_rows_are_those_of_the_whole_tensor(kind: str, folder: Path, tmp_path: Path) -> None:
    source = open_model(write_tiny_gguf(tmp_path / "t.gguf") if kind == "gguf" else folder)
    reader = open_weights(source)
    assert len(reader.shapes) > 10
    for name, shape in reader.shapes.items():
        rows = reader.read_rows(name, 3, shape[0] - 2)
        assert rows.shape == (shape[0] - 5, *shape[1:])
        assert torch.equal(rows, reader.read(name)[3:-2])


def test_stored_blocks_of_a_gguf_file_are_its_own_bytes(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf")
    reader = open_weights(open_model(path))
    for tensor in gguf.GGUFReader(str(path)).tensors:
        stored = reader.stored(tensor.name)
        assert stored is not None
        assert (stored.type_name, stored.shape) == (
            tensor.tensor_type.name,
            reader.shapes[tensor.name],
        )
        assert stored.data.numpy().tobytes() == tensor.data.tobytes()
        assert stored.data.shape[0] == (1 if len(stored.shape) == 1 else stored.shape[0])


def test_a_folder_has_no_stored_blocks(folder: Path) -> None:
    reader = open_weights(open_model(folder))
    assert reader.stored("model.norm.weight") is None


def test_a_type_without_weights_is_named_with_what_can_be_read(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf")
    name = b"output_norm.weight"
    content = bytearray(path.read_bytes())
    at = content.index(name) + len(name) + 4 + 8  # dimensions come first, then the type
    content[at : at + 4] = (26).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"'output_norm.weight' is stored as I32.*Q4_K.*NVFP4"):
        open_weights(open_model(path)).read("output_norm.weight")
