"""Opening models: what is read from both kinds of files, and what is refused by name."""

import hashlib
import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime.decoder_spec import DecoderSpec, LayerSpec, LongContext, RotarySpec
from runtime.errors import ModelError
from runtime.model_source import open_model
from tests.tiny_gguf import VOCAB, write_tiny_gguf
from tests.tiny_model import CHAT_TEMPLATE, write_tiny_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny")


def changed_folder(folder: Path, tmp_path: Path, *, file: str, changes: dict[str, Any]) -> Path:
    """A copy (by links) of the folder with entries of one JSON file replaced."""
    for original in folder.iterdir():
        (tmp_path / original.name).symlink_to(original)
    path = tmp_path / file
    content = json.loads(path.read_text()) if path.exists() else {}
    path.unlink(missing_ok=True)
    path.write_text(json.dumps(content | changes))
    return tmp_path


def test_a_gguf_file_gives_its_parameters(tmp_path: Path) -> None:
    source = open_model(write_tiny_gguf(tmp_path / "tiny.gguf"))
    assert source.architecture == "llama"
    frequencies = tuple(10000.0 ** (-pair / 8) for pair in range(8))
    assert source.spec == DecoderSpec(
        hidden_size=64,
        num_heads=4,
        num_kv_heads=2,
        head_dim=16,
        ffn_size=128,
        vocab_size=VOCAB,
        max_position=256,
        norm_eps=float(np.float32(1e-5)),
        attention_scale=0.25,
        tied_embeddings=True,
        layers=(LayerSpec(RotarySpec(frequencies)),) * 2,
    )


def test_a_gguf_file_gives_its_text_assets(tmp_path: Path) -> None:
    text = open_model(write_tiny_gguf(tmp_path / "tiny.gguf")).text
    assert text.vocab_size == VOCAB
    assert text.eos_token_ids == (2, 0)  # the named one, then <|endoftext|> by its name
    assert (text.bos_token_id, text.add_bos) == (1, False)
    assert text.chat_template == "{{ messages }}"
    assert text.special_tokens == {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    assert json.loads(text.tokenizer_json)["model"]["vocab"]["<|im_end|>"] == 2


def test_a_folder_gives_its_parameters_and_text_assets(folder: Path) -> None:
    source = open_model(folder)
    assert source.spec.num_kv_heads == 2
    assert source.spec.head_dim == 16
    assert source.spec.tied_embeddings is False
    assert source.text.eos_token_ids == (2, 0)
    assert source.text.chat_template == CHAT_TEMPLATE
    assert source.text.special_tokens["eos_token"] == "<|im_end|>"


def test_generation_config_comes_first_among_the_eos_ids(folder: Path, tmp_path: Path) -> None:
    changed = changed_folder(
        folder, tmp_path, file="generation_config.json", changes={"eos_token_id": [7, 2]}
    )
    assert open_model(changed).text.eos_token_ids == (7, 2, 0)


def test_a_template_file_wins_over_the_tokenizer_config(folder: Path, tmp_path: Path) -> None:
    changed = changed_folder(folder, tmp_path, file="config.json", changes={})
    (changed / "chat_template.jinja").write_text("from the file")
    assert open_model(changed).text.chat_template == "from the file"


def test_rope_theta_is_found_under_its_newer_name_too(folder: Path, tmp_path: Path) -> None:
    rope = {"rope_type": "default", "rope_theta": 500.0}
    changed = changed_folder(
        folder, tmp_path, file="config.json", changes={"rope_parameters": rope}
    )
    assert open_model(changed).spec.layers[0].rotary.inverse_frequencies[4] == 500.0**-0.5


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model_type": "gpt_neox"}, "model_type 'gpt_neox'"),
        ({"sliding_window": 64}, "sliding_window = 64"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope scaling of type 'dynamic'"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "parameter low_freq_factor"),
        ({"rope_scaling": {"type": "linear", "factor": 0}}, "factor must be a positive number"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor = 0.5"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config"),
        ({"num_key_value_heads": 3}, "cannot share 3"),
        ({"num_attention_heads": 0}, "config.json"),
        ({"hidden_size": "64"}, "hidden_size must be a whole number"),
        ({"head_dim": 15}, "even head size"),
        ({"eos_token_id": ["2"]}, r"eos_token_id must be a number or a list, it is \['2'\]"),
        ({"eos_token_id": True}, "eos_token_id must be a number or a list, it is True"),
        ({"rms_norm_eps": -1e-5}, "norm_eps must be a positive number, it is -1e-05"),
        ({"rms_norm_eps": math.nan}, "norm_eps must be a positive number, it is nan"),
        ({"rope_theta": math.nan}, "base of rotary positions must be a positive number"),
        ({"rope_theta": math.inf}, "base of rotary positions must be a positive number"),
        ({"rope_theta": 10**400}, "config.json: int too large"),
    ],
)
def test_a_variant_that_is_not_implemented_is_named(
    folder: Path, tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    with pytest.raises(ModelError, match=named) as caught:
        open_model(changed_folder(folder, tmp_path, file="config.json", changes=changes))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"general.architecture": "mamba"}, "architecture 'mamba'"),
        ({"llama.rope.scaling.type": "longrope"}, "rope.scaling.type = 'longrope'"),
        ({"llama.expert_count": 8}, "llama.expert_used_count' must be one whole number"),
        ({"llama.expert_count": 2, "llama.expert_used_count": 3}, "experts' numbers contradict"),
        ({"llama.attention.scale": 0.5}, "attention.scale = 0.5"),
        ({"llama.rope.dimension_count": 8}, "rope.dimension_count = 8"),
        ({"llama.block_count": None}, "'llama.block_count' must be one whole number"),
        ({"llama.attention.head_count": [4, 4]}, "head_count' must be one whole number"),
        ({"tokenizer.ggml.pre": "mystery"}, "'mystery'"),
        ({"tokenizer.ggml.model": "t5"}, "vocabulary kind 't5'"),
        ({"llama.attention.layer_norm_rms_epsilon": math.inf}, "norm_eps must be a positive"),
        ({"llama.rope.freq_base": -1e4}, "base of rotary positions must be a positive number"),
        ({"llama.rope.freq_base": math.nan}, "base of rotary positions must be a positive number"),
        (
            {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": -2.0},
            "turn by what is no positive number",
        ),
    ],
)
def test_a_gguf_variant_that_is_not_implemented_is_named(
    tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    path = write_tiny_gguf(tmp_path / "variant.gguf", metadata=changes)
    with pytest.raises(ModelError, match=named) as caught:
        open_model(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_frequency_factors_of_another_length_are_named(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "scaled.gguf", extra={"rope_freqs.weight": (9,)})
    with pytest.raises(ModelError, match=r"'rope_freqs.weight' is F32 of shape \(9,\)"):
        open_model(path)


@pytest.mark.parametrize(
    ("architecture", "named"),
    [
        ("mystery", "supported: gemma3, gemma3_text, llama, mistral, mixtral, phi3, qwen2, qwen3"),
        (None, "model_type None is not supported"),
    ],
)
def test_another_kind_of_folder_is_answered_with_those_that_are_supported(
    folder: Path, tmp_path: Path, architecture: str | None, named: str
) -> None:
    changes = {"model_type": architecture}
    with pytest.raises(ModelError, match=named):
        open_model(changed_folder(folder, tmp_path, file="config.json", changes=changes))


def test_another_kind_of_file_is_answered_with_those_that_are_supported(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf", metadata={"general.architecture": "mamba"})
    with pytest.raises(ModelError, match="supported: gemma3, llama, phi3, qwen2, qwen3, qwen3moe"):
        open_model(path)


@pytest.mark.parametrize(
    ("model_type", "changes", "named"),
    [
        ("mistral", {"attention_bias": True}, "attention_bias = True"),
        ("mistral", {"sliding_window": 0}, "sliding_window must be at least 1"),
        ("qwen2", {"use_sliding_window": True, "layer_types": ["mamba"] * 2}, "type 'mamba'"),
        ("qwen3", {"use_sliding_window": 1}, "use_sliding_window must be true or false"),
        ("gemma3_text", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ("gemma3_text", {"hidden_activation": "relu"}, "hidden_activation = 'relu'"),
        ("gemma3_text", {"sliding_window_pattern": 0}, "pattern of sliding windows"),
        ("phi3", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "of type 'linear'"),
        ("phi3", {"rope_scaling": {"type": "longrope"}}, "short_factor must be a list"),
        (
            "phi3",
            {"rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}},
            "1 rotary factors are given, 8 expected",
        ),
        ("phi3", {"partial_rotary_factor": 1.5}, "partial_rotary_factor must be above 0"),
        ("phi3", {"partial_rotary_factor": 0.1}, "no dimension of a head turns"),
        ("mixtral", {"num_experts_per_tok": 9}, "the experts' numbers contradict"),
        ("qwen3_moe", {"num_experts": 0}, "the experts' numbers contradict"),
    ],
)
def test_a_variant_of_another_architecture_is_named_too(
    folder: Path, tmp_path: Path, model_type: str, changes: dict[str, Any], named: str
) -> None:
    changes = {"model_type": model_type} | changes
    with pytest.raises(ModelError, match=named) as caught:
        open_model(changed_folder(folder, tmp_path, file="config.json", changes=changes))
    assert "config.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_path_says_so(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="there is no such model file or folder"):
        open_model(tmp_path / "nowhere")


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_missing_file_of_a_folder_is_named(folder: Path, tmp_path: Path, file: str) -> None:
    changed = changed_folder(folder, tmp_path, file="generation_config.json", changes={})
    (changed / file).unlink()
    with pytest.raises(ModelError, match=file):
        open_model(changed)


@pytest.mark.parametrize("content", ["{", '{"a":' + "[" * 100_000])
def test_a_damaged_config_is_named(folder: Path, tmp_path: Path, content: str) -> None:
    changed = changed_folder(folder, tmp_path, file="config.json", changes={})
    (changed / "config.json").write_text(content)
    with pytest.raises(ModelError, match=r"config.json: is not JSON"):
        open_model(changed)


def test_the_hash_of_a_gguf_file_is_its_sha256(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf")
    assert open_model(path).content_hash() == hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_hash_of_a_folder_changes_with_its_weights(folder: Path, tmp_path: Path) -> None:
    other = write_tiny_model(tmp_path / "other", seed=1)
    same = write_tiny_model(tmp_path / "same")
    assert open_model(folder).content_hash() == open_model(same).content_hash()
    assert open_model(folder).content_hash() != open_model(other).content_hash()


def test_opening_a_model_needs_no_torch() -> None:
    program = "import sys, runtime.model_source; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"attention_scale": (-4.0) ** -0.5}, "attention_scale must be a positive number"),
        ({"attention_softcap": -30.0}, "attention_softcap must be a positive number"),
        ({"logit_softcap": math.nan}, "logit_softcap must be a positive number"),
        ({"layers": (LayerSpec(RotarySpec((1.0,)), window=-3),)}, "window must be at least 1"),
        ({"layers": (LayerSpec(RotarySpec((1.0,), magnitude=-1.0)),)}, "no positive number"),
        (
            {"long_context": LongContext(above=9, rotary=RotarySpec((math.nan,)))},
            "no positive number",
        ),
    ],
)
def test_a_spec_with_which_nothing_can_be_computed_is_refused(
    folder: Path, changes: dict[str, Any], named: str
) -> None:
    spec = open_model(folder).spec
    spec.check()
    with pytest.raises(ValueError, match=named):
        replace(spec, **changes).check()


def test_pairs_that_do_not_turn_are_no_error() -> None:
    RotarySpec((1.0, 0.0)).check()
