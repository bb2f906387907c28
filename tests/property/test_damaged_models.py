"""Whatever a model's files hold, opening them gives a model or one line that says what is wrong."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.serve import template_of
from gateway.tokenizer import Tokenizer
from runtime.errors import ModelError
from runtime.model_source import open_model
from runtime.weights import open_weights
from tests.tiny_gguf import default_metadata, write_tiny_gguf
from tests.tiny_model import write_tiny_model

FILES = ("config.json", "tokenizer.json", "tokenizer_config.json")
ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma3", "phi3", "qwen3moe")
MODEL_TYPES = ("llama", "mistral", "qwen2", "qwen3", "gemma3_text", "phi3", "mixtral", "qwen3_moe")
KEYS = (
    "tokenizer.ggml.scores", "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.add_space_prefix", "rope.scaling.type", "rope.scaling.factor",
    "attention.key_length", "expert_count", "expert_used_count", "attention.sliding_window",
)  # fmt: skip
CONFIG_KEYS = (
    "rope_scaling", "rope_parameters", "rope_theta", "eos_token_id", "bos_token_id", "head_dim",
    "layer_types", "sliding_window", "num_local_experts", "num_experts", "query_pre_attn_scalar",
)  # fmt: skip

metadata_values = st.one_of(
    st.none(),
    st.sampled_from([0, 1, 3, 2**31, True, False, 1e-40, 0.0, float("nan"), float("inf")]),
    st.sampled_from(["", "x", "llama", "gpt2", "yarn"]),
    st.sampled_from([[1], [1.0], ["a"], [0] * 33, [0.5] * 33, [2**30] * 3]),
)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-1, 2**41)
    | st.floats()
    | st.sampled_from(["", "x", "llama3", "silu"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["type", "rope_type", "factor", "id"]), inner, max_size=2)
    ),
    max_leaves=4,
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damaged")


@pytest.fixture(scope="module")
def whole_gguf(place: Path) -> bytes:
    return write_tiny_gguf(place / "whole.gguf").read_bytes()


@pytest.fixture(scope="module")
def folder(place: Path) -> Path:
    return write_tiny_model(place / "folder")


def open_all(path: Path, *, reads_weights: bool = False) -> None:
    """As the two processes open a model. Any other exception than a ModelError fails the test."""
    complaint = "none"
    try:
        source = open_model(path)
        Tokenizer(source.text)
        template_of(source)
        reader = open_weights(source)
        for name in reader.shapes if reads_weights else ():
            reader.read(name)
    except ModelError as error:
        complaint = str(error)
    assert complaint
    assert "\n" not in complaint


@given(
    at=st.floats(0, 1),
    removed=st.integers(0, 24),
    added=st.binary(max_size=24) | st.sampled_from([b"\xff" * 8, bytes(8), b"\0" * 7 + b"\x80"]),
)
def test_a_gguf_header_with_other_bytes(
    whole_gguf: bytes, place: Path, at: float, removed: int, added: bytes
) -> None:
    header_len = whole_gguf.index(b"blk.1.ffn_down.weight") + 60
    start = int(at * header_len)
    path = place / "bytes.gguf"
    path.write_bytes(whole_gguf[:start] + added + whole_gguf[start + removed :])
    open_all(path, reads_weights=True)


@given(
    architecture=st.sampled_from(ARCHITECTURES),
    changes=st.dictionaries(
        st.sampled_from([*(key.removeprefix("llama.") for key in default_metadata()), *KEYS]),
        metadata_values,
        min_size=1,
        max_size=3,
    ),
)
@example(architecture="llama", changes={"block_count": 2**31})
@example(architecture="llama", changes={"rope.freq_base": 0.0})
@example(architecture="llama", changes={"attention.key_length": 2**31})
def test_gguf_metadata_with_other_values(
    place: Path, architecture: str, changes: dict[str, Any]
) -> None:
    is_shared = ("general.", "tokenizer.")
    plain = {key.removeprefix("llama."): value for key, value in default_metadata().items()}
    metadata = {
        key if key.startswith(is_shared) else f"{architecture}.{key}": value
        for key, value in (plain | changes).items()
    }
    metadata["general.architecture"] = architecture
    open_all(write_tiny_gguf(place / "values.gguf", metadata=metadata))


@given(
    file=st.sampled_from(FILES),
    model_type=st.sampled_from(MODEL_TYPES),
    key=st.sampled_from(CONFIG_KEYS),
    where=st.lists(st.integers(0, 30), min_size=1, max_size=5),
    value=json_values,
)
@example("config.json", "mixtral", "num_local_experts", [0], 2**40)
@example("tokenizer.json", "llama", "head_dim", [8, 2], [])
def test_a_folder_with_other_values_in_its_json(
    folder: Path, file: str, model_type: str, key: str, where: list[int], value: Any
) -> None:
    original = (folder / file).read_text()
    document = json.loads(original)
    _replace(document, where, value)
    if file == "config.json":
        document |= {"model_type": model_type, key: value}
    (folder / file).write_text(json.dumps(document))
    try:
        open_all(folder)
    finally:
        (folder / file).write_text(original)


def _replace(document: Any, where: list[int], value: Any) -> None:
    """Puts the value where the path of entry numbers leads, or as far as it leads."""
    for number, step in enumerate(where, start=1):
        keys = list(document) if isinstance(document, dict) else list(range(len(document)))
        if not keys:
            return
        key = keys[step % len(keys)]
        if number == len(where) or not isinstance(document[key], dict | list):
            document[key] = value
            return
        document = document[key]
