"""What the metadata of GGUF files says of each architecture."""

from pathlib import Path
from typing import Any

import pytest

from runtime.errors import ModelError
from runtime.gguf_file import GgufFile
from runtime.models.blueprint import Blueprint
from runtime.models.gguf_metadata import GgufMetadata
from runtime.models.registry import GGUF_ARCHITECTURES
from tests.tiny_gguf import HEAD_DIM, LAYERS, default_metadata, write_tiny_gguf

PAIRS = HEAD_DIM // 2


def blueprint(path: Path, architecture: str, **entries: Any) -> Blueprint:
    """The tiny file's sizes under another architecture's name. In names of entries two underscores
    stand for a dot; what holds the tensors does not matter here."""
    own = {
        f"{architecture}.{key.removeprefix('llama.')}": value
        for key, value in default_metadata().items()
        if key.startswith("llama.")
    }
    own |= {f"{architecture}.{key.replace('__', '.')}": value for key, value in entries.items()}
    metadata = {key: None for key in default_metadata() if key.startswith("llama.")} | own
    write_tiny_gguf(path, metadata=metadata | {"general.architecture": architecture})
    return GGUF_ARCHITECTURES[architecture](GgufMetadata(GgufFile.open(path)))


def test_gemma3_has_windows_and_frequencies_of_its_own_in_all_but_every_sixth_layer(
    tmp_path: Path,
) -> None:
    spec = blueprint(
        tmp_path / "m.gguf",
        "gemma3",
        block_count=7,
        attention__sliding_window=32,
        rope__freq_base=1e6,
        rope__scaling__type="linear",
        rope__scaling__factor=8.0,
    ).spec
    assert [layer.window for layer in spec.layers] == [32] * 5 + [None, 32]
    local, everywhere = spec.layers[0].rotary, spec.layers[5].rotary
    assert local.inverse_frequencies[4] == pytest.approx(1e4**-0.5)
    assert everywhere.inverse_frequencies[4] == pytest.approx(1e6**-0.5 / 8)
    assert (spec.embedding_scale, spec.attention_scale) == (8.0, 0.25)
    assert spec.logit_softcap is None


@pytest.mark.parametrize("pattern", [2, [True, False]])
def test_gemma3_may_name_its_pattern_local_base_and_softcaps(tmp_path: Path, pattern: Any) -> None:
    spec = blueprint(
        tmp_path / "m.gguf",
        "gemma3",
        attention__sliding_window=32,
        attention__sliding_window_pattern=pattern,
        rope__freq_base_swa=100.0,
        final_logit_softcapping=30.0,
        attn_logit_softcapping=50.0,
    ).spec
    assert [layer.window for layer in spec.layers] == [32, None]
    assert spec.layers[0].rotary.inverse_frequencies[4] == pytest.approx(0.1)
    assert (spec.logit_softcap, spec.attention_softcap) == (30.0, 50.0)


def test_the_largest_gemma3_scales_scores_by_its_hidden_size(tmp_path: Path) -> None:
    spec = blueprint(
        tmp_path / "m.gguf",
        "gemma3",
        block_count=62,
        embedding_length=256,
        attention__key_length=HEAD_DIM,
        attention__value_length=HEAD_DIM,
    ).spec
    assert spec.attention_scale == 0.125
    assert {layer.window for layer in spec.layers} == {None}


def test_a_window_of_a_llama_file_is_that_of_mistral(tmp_path: Path) -> None:
    spec = blueprint(tmp_path / "m.gguf", "llama", attention__sliding_window=24).spec
    assert [layer.window for layer in spec.layers] == [24] * LAYERS


def test_qwen3moe_normalizes_unless_the_file_says_no(tmp_path: Path) -> None:
    experts = {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 32}
    path = tmp_path / "m.gguf"
    silent = blueprint(path, "qwen3moe", **experts).spec.experts
    said = blueprint(path, "qwen3moe", **experts, expert_weights_norm=False).spec.experts
    assert silent is not None
    assert said is not None
    assert (silent.normalize, said.normalize) == (True, False)


def test_a_scaling_factor_of_zero_is_none(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    spec = blueprint(path, "llama", rope__scaling__factor=0.0, rope__scaling__type="none").spec
    assert spec == blueprint(path, "llama").spec


def test_yarn_in_a_file_takes_its_bounds(tmp_path: Path) -> None:
    yarn = {
        "rope__scaling__type": "yarn",
        "rope__scaling__factor": 4.0,
        "rope__scaling__original_context_length": 64,
    }
    path = tmp_path / "m.gguf"
    usual = blueprint(path, "qwen2", **yarn).spec.layers[0].rotary
    named = blueprint(path, "qwen2", **yarn, rope__scaling__yarn_beta_fast=2.0).spec.layers[0]
    assert usual.magnitude == named.rotary.magnitude > 1
    assert sum(usual.inverse_frequencies) < sum(named.rotary.inverse_frequencies)


@pytest.mark.parametrize(
    ("architecture", "entries", "named"),
    [
        ("qwen2", {"attention__sliding_window": 64}, "sliding_window = 64"),
        ("qwen2", {"expert_count": 8}, "expert_count = 8"),
        ("qwen3", {"rope__dimension_count": 8}, "rope.dimension_count = 8"),
        ("gemma3", {"attention__scale": 0.5}, "attention.scale = 0.5"),
        ("gemma3", {"attention__sliding_window_pattern": [True]}, "1 entries for 2 layers"),
        ("phi3", {"rope__dimension_count": 17}, "dimension_count = 17 is not between"),
        ("phi3", {"rope__scaling__type": "yarn"}, "rope.scaling.type = 'yarn'"),
        (
            "llama",
            {"rope__scaling__type": "yarn", "rope__scaling__original_context_length": 64,
             "rope__scaling__attn_factor": 0.5},
            "attn_factor = 0.5",
        ),
        ("qwen3moe", {"expert_count": 8, "expert_shared_count": 1}, "expert_shared_count = 1"),
    ],
)  # fmt: skip
def test_a_variant_is_named(
    tmp_path: Path, architecture: str, entries: dict[str, Any], named: str
) -> None:
    with pytest.raises(ModelError, match=named) as caught:
        blueprint(tmp_path / "m.gguf", architecture, **entries)
    assert "\n" not in str(caught.value)
