"""Files of one model that do not belong together, or name what is not there: one line each."""

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from runtime.errors import ModelError
from runtime.model_source import open_model
from runtime.weights import open_weights
from tests.tiny_gguf import TOKENS, VOCAB, write_tiny_gguf
from tests.tiny_model import write_tiny_model

INDEX = "model.safetensors.index.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "tiny")


def change(file: Path, changes: dict[str, Any]) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def write_index(folder: Path, extra: dict[str, str]) -> None:
    """An index of the one shard that `folder` has, and of what `extra` says."""
    names = load_file(folder / "model.safetensors")
    weight_map = dict.fromkeys(names, "model.safetensors") | extra
    (folder / INDEX).write_text(json.dumps({"weight_map": weight_map}))


def complaint(path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        open_weights(open_model(path))
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_a_gguf_vocabulary_larger_than_the_embedding_is_refused(tmp_path: Path) -> None:
    tokens = [*TOKENS, *(f"t{i}" for i in range(VOCAB + 1 - len(TOKENS)))]
    changes = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": [1] * len(tokens)}
    path = write_tiny_gguf(tmp_path / "large.gguf", metadata=changes)
    assert f"{VOCAB + 1} tokens, but the embedding only {VOCAB} rows" in complaint(path)


def test_a_folders_vocabulary_larger_than_the_embedding_is_refused(folder: Path) -> None:
    change(folder / "config.json", {"vocab_size": 511})
    assert "512 tokens, but the embedding only 511 rows" in complaint(folder)


def test_added_tokens_count_as_well(folder: Path) -> None:
    file = folder / "tokenizer.json"
    added = json.loads(file.read_text())["added_tokens"]
    change(file, {"added_tokens": [*added, added[0] | {"id": 512, "content": "<extra>"}]})
    assert "513 tokens, but the embedding only 512 rows" in complaint(folder)


@pytest.mark.parametrize("key", ["bos_token_id", "eos_token_id"])
def test_a_special_token_beyond_the_vocabulary_is_refused(tmp_path: Path, key: str) -> None:
    path = write_tiny_gguf(tmp_path / "far.gguf", metadata={f"tokenizer.ggml.{key}": 64})
    assert "token 64 is to begin or end a text, but the vocabulary has only 64" in complaint(path)


@pytest.mark.parametrize("added", [[{"id": 1}], [{"id": "one", "content": "x"}], 5, [7]])
def test_a_damaged_tokenizer_is_named(folder: Path, added: Any) -> None:
    change(folder / "tokenizer.json", {"added_tokens": added})
    assert "a file of the tokenizer is damaged" in complaint(folder)


def test_a_tensor_of_the_index_that_its_shard_lacks_is_named(folder: Path) -> None:
    write_index(folder, {"model.layers.9.mlp.up_proj.weight": "model.safetensors"})
    assert "lacks tensor 'model.layers.9.mlp.up_proj.weight'" in complaint(folder)


def test_a_tensor_that_lies_in_another_shard_than_the_index_says_is_named(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    moved = {"model.norm.weight": tensors.pop("model.norm.weight")}
    save_file(tensors, folder / "model.safetensors")
    save_file(moved | {"other": moved["model.norm.weight"].clone()}, folder / "b.safetensors")
    write_index(folder, {"other": "b.safetensors", "model.norm.weight": "model.safetensors"})
    assert "model.safetensors: lacks tensor 'model.norm.weight'" in complaint(folder)


@pytest.mark.parametrize("name", ["../elsewhere.safetensors", "/etc/passwd", ""])
def test_an_index_that_leads_out_of_the_folder_is_refused(folder: Path, name: str) -> None:
    write_index(folder, {"model.norm.weight": name})
    assert f"{name!r} is not the name of a file beside it" in complaint(folder)


@pytest.mark.parametrize("index", [{}, {"weight_map": {}}, {"weight_map": ["a"]}])
def test_an_index_without_names_is_refused(folder: Path, index: dict[str, Any]) -> None:
    (folder / INDEX).write_text(json.dumps(index))
    assert "has no 'weight_map'" in complaint(folder)
