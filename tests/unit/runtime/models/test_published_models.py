"""Configurations as published: each is accepted, and its map covers the model's known size.

The numbers of weights are those on the models' pages (the index of their safetensors files).
"""

import math
from typing import Any

import pytest

from runtime.models.blueprint import Blueprint
from runtime.models.model_config import ModelConfig
from runtime.models.registry import MODEL_TYPES

_LLAMA3_ROPE = {
    "factor": 32.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}
_LONGROPE = {"long_factor": [2.0] * 48, "short_factor": [1.0] * 48, "type": "longrope"}
_GEMMA3 = {
    "model_type": "gemma3_text",
    "attention_bias": False,
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
    "cache_implementation": "hybrid",
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "max_position_embeddings": 32768,
    "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-06,
    "rope_local_base_freq": 10000,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": 512,
    "vocab_size": 262144,
}
_QWEN = {
    "hidden_act": "silu",
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
_PHI = {
    "model_type": "phi3",
    "attention_bias": False,
    "embd_pdrop": 0.0,
    "hidden_act": "silu",
    "original_max_position_embeddings": 4096,
    "resid_pdrop": 0.0,
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0,
}


def sizes(
    layers: int, hidden: int, ffn: int, heads: int, kv_heads: int | None, **more: Any
) -> dict[str, Any]:
    return more | {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": ffn,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
    }


PUBLISHED: dict[str, tuple[dict[str, Any], int]] = {
    "Llama 2 7B": (
        {"model_type": "llama", "hidden_act": "silu", "pretraining_tp": 1, "rope_scaling": None,
         "tie_word_embeddings": False, **sizes(32, 4096, 11008, 32, 32, vocab_size=32000)},
        6_738_415_616,
    ),
    "Llama 3.2 1B": (
        {"model_type": "llama", "attention_bias": False, "head_dim": 64, "mlp_bias": False,
         "rope_scaling": _LLAMA3_ROPE, "rope_theta": 500000.0, "tie_word_embeddings": True,
         **sizes(16, 2048, 8192, 32, 8, vocab_size=128256)},
        1_235_814_400,
    ),
    "TinyLlama 1.1B": (
        {"model_type": "llama", "rope_theta": 10000.0,
         **sizes(22, 2048, 5632, 32, 4, vocab_size=32000)},
        1_100_048_384,
    ),
    "SmolLM2 135M": (
        {"model_type": "llama", "is_llama_config": True, "rope_interleaved": False,
         "rope_theta": 100000, "tie_word_embeddings": True,
         **sizes(30, 576, 1536, 9, 3, vocab_size=49152)},
        134_515_008,
    ),
    "Mistral 7B v0.1": (
        {"model_type": "mistral", "sliding_window": 4096, "rope_theta": 10000.0,
         **sizes(32, 4096, 14336, 32, 8, vocab_size=32000)},
        7_241_732_096,
    ),
    "Mixtral 8x7B": (
        {"model_type": "mixtral", "num_experts_per_tok": 2, "num_local_experts": 8,
         "rope_theta": 1000000.0, "router_aux_loss_coef": 0.02, "sliding_window": None,
         **sizes(32, 4096, 14336, 32, 8, vocab_size=32000)},
        46_702_792_704,
    ),
    "Qwen2.5 0.5B": (
        {**_QWEN, "model_type": "qwen2", "max_window_layers": 21, "sliding_window": 32768,
         "tie_word_embeddings": True, **sizes(24, 896, 4864, 14, 2)},
        494_032_768,
    ),
    "Qwen3 0.6B": (
        {**_QWEN, "model_type": "qwen3", "attention_bias": False, "head_dim": 128,
         "max_window_layers": 28, "sliding_window": None, "tie_word_embeddings": True,
         **sizes(28, 1024, 3072, 16, 8)},
        596_049_920,
    ),
    "Qwen3 30B-A3B": (
        {**_QWEN, "model_type": "qwen3_moe", "attention_bias": False, "decoder_sparse_step": 1,
         "head_dim": 128, "mlp_only_layers": [], "moe_intermediate_size": 768,
         "norm_topk_prob": True, "num_experts": 128, "num_experts_per_tok": 8,
         "tie_word_embeddings": False, **sizes(48, 2048, 6144, 32, 4)},
        30_532_122_624,
    ),
    "Gemma 3 270M": ({**_GEMMA3, **sizes(18, 640, 2048, 4, 1)}, 268_098_176),
    "Gemma 3 1B": (
        {**_GEMMA3, "sliding_window_pattern": 6, **sizes(26, 1152, 6912, 4, 1)}, 999_885_952,
    ),
    "Phi-3.5 mini": (
        {**_PHI, "max_position_embeddings": 131072, "rope_scaling": _LONGROPE,
         "sliding_window": 262144, **sizes(32, 3072, 8192, 32, 32, vocab_size=32064)},
        3_821_079_552,
    ),
    "Phi-4 mini": (
        {**_PHI, "full_attn_mod": 1, "interpolate_factor": 1, "lm_head_bias": False,
         "max_position_embeddings": 131072, "mlp_bias": False, "partial_rotary_factor": 0.75,
         "rope_scaling": _LONGROPE, "sliding_window": 262144, "tie_word_embeddings": True,
         **sizes(32, 3072, 8192, 24, 8, vocab_size=200064)},
        3_836_021_760,
    ),
    "Phi-4": (
        {**_PHI, "max_position_embeddings": 16384, "original_max_position_embeddings": 16384,
         "rope_scaling": None, "rope_theta": 250000, "sliding_window": None,
         **sizes(40, 5120, 17920, 40, 10, vocab_size=100352)},
        14_659_507_200,
    ),
}  # fmt: skip


def blueprint(name: str) -> Blueprint:
    config, _ = PUBLISHED[name]
    return MODEL_TYPES[config["model_type"]](ModelConfig(config))


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_model_has_its_number_of_weights(name: str) -> None:
    shapes = blueprint(name).weight_map.shapes.values()
    assert sum(math.prod(shape) for shape in shapes) == PUBLISHED[name][1]


def test_some_of_their_constants() -> None:
    assert blueprint("Gemma 3 1B").spec.embedding_scale == math.sqrt(1152)
    assert blueprint("Gemma 3 270M").spec.tied_embeddings
    assert [i for i, one in enumerate(blueprint("Gemma 3 1B").spec.layers) if not one.window] == [
        5, 11, 17, 23,
    ]  # fmt: skip
    phi = blueprint("Phi-4 mini").spec
    assert phi.layers[0].rotary.magnitudes.count(1.0) == 16
    assert phi.layers[0].rotary.magnitude == pytest.approx(1.1902380714238083)
    assert {layer.window for layer in blueprint("Mistral 7B v0.1").spec.layers} == {4096}
