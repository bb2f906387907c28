"""A model that is damaged, half there or does not fit together ends the start with one line that
names the file, whichever process finds out; no traceback."""

import json
import signal
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import gguf
import pytest
from safetensors.torch import load_file

from tests.e2e.server_process import ServerProcess, serving
from tests.e2e.test_start_errors import EXIT_FAILED, Start, start
from tests.fake_hub import FakeHub, serving_hub
from tests.tiny_gguf import TOKENS, VOCAB, write_tiny_gguf
from tests.tiny_model import write_tiny_model

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(90)]

NORM = "output_norm.weight"
# Where a tensor's entry in the header has its length, type and offset, after its name.
LENGTH, TYPE, OFFSET = 4, 12, 16


def start_with(model: Path, *flags: str) -> Start:
    """A start that fails on this model, whose file or tensor the complaint names."""
    ended = start("--port", "0", "--model", str(model), "--num-threads", "1", *flags)
    assert ended.code == EXIT_FAILED
    assert str(model) in ended.complaint or "tensor '" in ended.complaint
    return ended


def patched(path: Path, *, field: int, new: bytes) -> None:
    content = bytearray(path.read_bytes())
    at = content.index(NORM.encode()) + len(NORM) + field
    content[at : at + len(new)] = new
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def give_unknown_type(path: Path) -> None:
    patched(path, field=TYPE, new=struct.pack("<I", 200))


def lay_over_another(path: Path) -> None:
    patched(path, field=OFFSET, new=struct.pack("<Q", 0))


def shorten_a_norm(path: Path) -> None:
    patched(path, field=LENGTH, new=struct.pack("<Q", 32))


def blank_the_end(path: Path) -> None:
    last = max(gguf.GGUFReader(str(path)).tensors, key=lambda tensor: tensor.data_offset)
    content = path.read_bytes()
    path.write_bytes(content[: last.data_offset] + bytes(len(content) - last.data_offset))


def add_tokens(path: Path) -> None:
    tokens = [*TOKENS, *(f"t{i}" for i in range(VOCAB + 1 - len(TOKENS)))]
    kinds = [1] * len(tokens)
    changes = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": kinds}
    write_tiny_gguf(path, metadata=changes)


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (cut, "is truncated"),
        (give_unknown_type, "unknown type number 200"),
        (lay_over_another, "lie over each other"),
        (add_tokens, "65 tokens, but the embedding only 64 rows"),
        (shorten_a_norm, f"'{NORM}' has shape (32,)"),
        (blank_the_end, "holds nothing but zeros"),
    ],
)
def test_a_damaged_gguf_file_is_named(
    tmp_path: Path, damage: Callable[[Path], None], expected: str
) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf")
    damage(path)
    assert expected in start_with(path).complaint


def with_index(folder: Path, extra: dict[str, str]) -> None:
    names = load_file(folder / "model.safetensors")
    weight_map = dict.fromkeys(names, "model.safetensors") | extra
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def lose_a_shard(folder: Path) -> None:
    with_index(folder, {"model.norm.weight": "lost.safetensors"})


def promise_a_tensor(folder: Path) -> None:
    with_index(folder, {"model.layers.9.mlp.up_proj.weight": "model.safetensors"})


def cut_the_weights(folder: Path) -> None:
    cut(folder / "model.safetensors")


def shrink_the_embedding(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text()) | {"vocab_size": 500}
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lose_a_shard, "lost.safetensors: this file of the model is missing"),
        (shrink_the_embedding, "512 tokens, but the embedding only 500 rows"),
        (promise_a_tensor, "lacks tensor 'model.layers.9.mlp.up_proj.weight'"),
        (cut_the_weights, "model.safetensors: is damaged"),
    ],
)
def test_a_damaged_folder_is_named(
    tmp_path: Path, damage: Callable[[Path], None], expected: str
) -> None:
    folder = write_tiny_model(tmp_path / "tiny")
    damage(folder)
    assert expected in start_with(folder).complaint


def test_a_context_longer_than_the_models_is_refused(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path / "tiny", max_position=128)
    ended = start("--port", "0", "--model", str(folder), "--max-model-len", "129")
    assert ended.code == EXIT_FAILED
    assert "max_model_len" in ended.complaint
    assert "128" in ended.complaint


def test_a_hub_model_that_cannot_be_had_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    ended = start("--port", "0", "--model", "org/absent")
    assert ended.code == EXIT_FAILED
    assert ended.complaint.startswith("radixgate: org/absent: is not completely in the cache")


def test_a_hub_model_is_fetched_once_and_served_under_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_tiny_model(tmp_path / "tiny")
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    with serving_hub(FakeHub("org/tiny", files)) as hub:
        monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        with serving(*("--num-threads", "1"), model="org/tiny@main") as (server, target):
            assert target.model == "org/tiny"
        assert sorted(name for name, _ in hub.gets) == sorted(files)
        assert any("fetching model.safetensors" in line for line in server.stderr)


def test_a_download_that_is_interrupted_by_hand_ends_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_tiny_model(tmp_path / "tiny")
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    hub = FakeHub("org/tiny", files, troubled="model.safetensors", sends=1000)
    hub.holds = threading.Event()
    with serving_hub(hub):
        monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        server = ServerProcess("--port", "0", "--model", "org/tiny")
        try:
            assert hub.is_held.wait(60)
            server.signal(signal.SIGINT)
            assert server.wait() == 128 + signal.SIGINT
        finally:
            server.stop()
        assert "Traceback" not in server.output()
