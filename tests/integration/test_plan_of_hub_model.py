"""`radixgate plan` of a hub id: config.json is fetched, and nothing else."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fake_hub import FakeHub, serving_hub
from tests.model_file import ROOT

pytestmark = pytest.mark.timeout(60)

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 256,
    "max_position_embeddings": 512,
}
FILES = {"config.json": json.dumps(CONFIG).encode(), "model.safetensors": b"never fetched"}


def plan(model: str, home: Path, endpoint: str) -> "subprocess.CompletedProcess[str]":
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    flags = ("--gpu", "l4", "--prompt", "16", "--output", "8", "--json")
    return subprocess.run(
        (sys.executable, "-m", "gateway.cli", "plan", "--model", model, *flags),
        cwd=ROOT,
        env={**kept, "HF_HOME": str(home), "HF_ENDPOINT": endpoint, "NO_PROXY": "*"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_config_json_alone_is_fetched_and_kept(tmp_path: Path) -> None:
    with serving_hub(FakeHub("org/tiny", dict(FILES))) as hub:
        first = plan("org/tiny", tmp_path, hub.url)
        assert first.returncode == 0, first.stderr
        assert hub.fetched() == {"config.json"}
        unknown = plan("org/other", tmp_path, hub.url)
    found: dict[str, Any] = json.loads(first.stdout)
    assert found["model"]["name"] == "org/tiny"
    assert found["model"]["kv_bytes_per_token"] == 2 * 2 * 2 * 16 * 2
    assert unknown.returncode == 1
    assert unknown.stderr.startswith("radixgate: org/other: is no file or folder here, and the hub")
    again = plan("org/tiny", tmp_path, "http://127.0.0.1:9")
    assert (again.returncode, again.stdout) == (0, first.stdout)
