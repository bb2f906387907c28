"""Older and newer forms of config.json mean the same; what is left out has its default."""

from typing import Any

import pytest

from runtime.decoder_spec import DecoderSpec
from runtime.models.model_config import ModelConfig
from runtime.models.registry import MODEL_TYPES

SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
LONGROPE = {"type": "longrope", "short_factor": [1.5] * 8, "long_factor": [3.0] * 8}


def spec(model_type: str, **entries: Any) -> DecoderSpec:
    """Without weight files."""
    return MODEL_TYPES[model_type](ModelConfig(SIZES | entries)).spec


@pytest.mark.parametrize(
    ("model_type", "older", "newer"),
    [
        (
            "llama",
            {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 4.0}},
            {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 5e5}},
        ),
        (
            "gemma3_text",
            {"rope_theta": 3e6, "rope_local_base_freq": 2e4, "sliding_window_pattern": 3,
             "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
            {"layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
             "rope_parameters": {
                 "sliding_attention": {"rope_type": "default", "rope_theta": 2e4},
                 "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 3e6}}},
        ),
        (
            "gemma3_text",
            {},
            {"sliding_window": 4096, "head_dim": 256, "query_pre_attn_scalar": 256,
             "rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window_pattern": 6,
             "tie_word_embeddings": True, "hidden_activation": "gelu_pytorch_tanh"},
        ),
        (
            "gemma3_text",
            {"rope_parameters": {"full_attention": {"type": "linear", "factor": 8.0}}},
            {"rope_scaling": {"type": "linear", "factor": 8.0}},
        ),
        (
            "phi3",
            {"rope_scaling": LONGROPE | {"type": "su"}, "original_max_position_embeddings": 128},
            {"rope_parameters": LONGROPE | {"rope_type": "longrope", "rope_theta": 10_000.0},
             "original_max_position_embeddings": 128},
        ),
        (
            "phi3",
            {"partial_rotary_factor": 0.5},
            {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
        ),
        ("mixtral", {}, {"rope_theta": 1e6, "num_local_experts": 8, "num_experts_per_tok": 2}),
        ("mistral", {}, {"sliding_window": 4096, "head_dim": None}),
        ("qwen3", {"sliding_window": 32}, {"use_sliding_window": False, "head_dim": 128}),
        ("qwen3_moe", {}, {"decoder_sparse_step": 1, "mlp_only_layers": [], "num_experts": 128}),
    ],
)  # fmt: skip
def test_two_forms_mean_the_same(
    model_type: str, older: dict[str, Any], newer: dict[str, Any]
) -> None:
    assert spec(model_type, **older) == spec(model_type, **newer)


def test_the_text_part_of_a_model_with_images_is_read() -> None:
    whole = ModelConfig({"text_config": SIZES | {"sliding_window": 32}, "vocab_size": 1})
    assert MODEL_TYPES["gemma3"](whole).spec == spec("gemma3_text", sliding_window=32)


def test_windows_of_qwen_begin_at_the_layer_that_is_named() -> None:
    windowed = spec("qwen2", use_sliding_window=True, sliding_window=32, max_window_layers=4)
    assert [layer.window for layer in windowed.layers] == [None] * 4 + [32] * 2


def test_experts_are_in_every_second_layer_but_those_named_dense() -> None:
    sparse = spec("qwen3_moe", decoder_sparse_step=2, mlp_only_layers=[3])
    assert [layer.has_experts for layer in sparse.layers] == [i in (1, 5) for i in range(6)]


def test_longrope_is_settled_by_the_longest_sequence() -> None:
    phi3 = spec("phi3", rope_scaling=LONGROPE, original_max_position_embeddings=128)
    short, long = phi3.for_context(128), phi3.for_context(129)
    assert short.layers[0].rotary.inverse_frequencies[0] == pytest.approx(1 / 1.5)
    assert long.layers[0].rotary.inverse_frequencies[0] == pytest.approx(1 / 3.0)
    assert short.layers[0].rotary.magnitude == long.layers[0].rotary.magnitude > 1
    assert long == long.for_context(1)


def test_the_part_of_a_head_that_does_not_turn_takes_no_magnitude() -> None:
    factors = {"short_factor": [1.0] * 4, "long_factor": [1.0] * 4}
    phi3 = spec(
        "phi3",
        rope_scaling=LONGROPE | factors,
        original_max_position_embeddings=128,
        partial_rotary_factor=0.5,
    )
    rotary = phi3.layers[0].rotary
    assert rotary.inverse_frequencies[4:] == (0.0,) * 4
    assert rotary.magnitudes == (rotary.magnitude,) * 4 + (1.0,) * 4


def test_llama3_scaling_keeps_short_waves_and_stretches_long_ones() -> None:
    rope = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 1000,
    }
    plain = spec("llama").layers[0].rotary.inverse_frequencies
    scaled = spec("llama", rope_scaling=rope).layers[0].rotary.inverse_frequencies
    ratios = [a / b for a, b in zip(scaled, plain, strict=True)]
    assert ratios[:4] == [1.0] * 4  # 0.0316 radians a position turn 5 times in 1,000
    assert 0.125 < ratios[4] < 1.0  # 0.01 radians: 1.6 times
    assert ratios[5:] == [0.125] * 3


def test_yarn_keeps_fast_pairs_stretches_slow_ones_and_raises_the_magnitude() -> None:
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256}
    plain = spec("llama").layers[0].rotary
    yarn = spec("llama", rope_scaling=rope).layers[0].rotary
    pairs = zip(yarn.inverse_frequencies, plain.inverse_frequencies, strict=True)
    ratios = [a / b for a, b in pairs]
    assert ratios[0] == 1.0
    assert ratios[-1] == 0.25
    assert ratios == sorted(ratios, reverse=True)
    assert yarn.magnitude == pytest.approx(1.1386, abs=1e-4)  # 0.1 ln 4 + 1


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "yarn", "factor": 4.0},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 9, "mscale": 1.0},
        {"rope_type": "linear", "factor": "2"},
        {"rope_type": "llama3"},
        {"rope_type": "longrope"},
        "linear",
        {"full_attention": {"rope_type": "linear", "factor": 2.0}},
    ],
)
def test_scalings_without_their_parameters_are_refused(rope: Any) -> None:
    with pytest.raises(ValueError, match="rope|rotary"):
        spec("llama", rope_scaling=rope)
