"""config.json of architectures that differ in what they keep and compute."""

from typing import Any

import pytest

from planning.errors import PlanError
from planning.known_models import known_model
from planning.model_config import model_of_config
from planning.model_facts import ModelFacts

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14_336,
    "vocab_size": 128_256,
    "max_position_embeddings": 131_072,
    "tie_word_embeddings": False,
}
GEMMA: dict[str, Any] = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 5376,
        "num_hidden_layers": 62,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "head_dim": 128,
        "intermediate_size": 21_504,
        "vocab_size": 262_208,
        "max_position_embeddings": 131_072,
        "sliding_window": 1024,
    },
}
GPT_OSS: dict[str, Any] = {
    "model_type": "gpt_oss",
    "hidden_size": 2880,
    "num_hidden_layers": 36,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "intermediate_size": 2880,
    "vocab_size": 201_088,
    "max_position_embeddings": 131_072,
    "attention_bias": True,
    "num_local_experts": 128,
    "num_experts_per_tok": 4,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 18,
    "quantization_config": {"quant_method": "mxfp4"},
}
QWEN_MOE: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "vocab_size": 151_936,
    "max_position_embeddings": 40_960,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "sliding_window": None,
    "use_sliding_window": False,
}
MIXTRAL: dict[str, Any] = LLAMA | {
    "model_type": "mixtral",
    "vocab_size": 32_000,
    "max_position_embeddings": 32_768,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "sliding_window": None,
}


def facts_of(entries: dict[str, Any]) -> ModelFacts:
    return model_of_config(entries, name="mine", source="config.json").facts


@pytest.mark.parametrize(
    ("entries", "name"),
    [
        (LLAMA, "llama-3.1-8b"),
        (GEMMA, "gemma-3-27b"),
        (GPT_OSS, "gpt-oss-120b"),
        (QWEN_MOE, "qwen3-30b-a3b"),
        (MIXTRAL, "mixtral-8x7b"),
    ],
)
def test_a_config_says_what_the_table_says(entries: dict[str, Any], name: str) -> None:
    found, known = facts_of(entries), known_model(name)
    assert found.total_params == known.total_params
    assert found.active_params == known.active_params
    assert found.windows == known.windows
    assert (found.num_kv_heads, found.head_dim) == (known.num_kv_heads, known.head_dim)


@pytest.mark.parametrize(
    ("quantization", "bits"),
    [
        (None, 16),
        ({"quant_method": "fp8"}, 8),
        ({"quant_method": "awq", "bits": 4}, 4.5),
        ({"quant_method": "gptq", "bits": 8}, 8),
        ({"quant_method": "mxfp4"}, 16),
    ],
)
def test_the_bits_of_the_weights_are_read(quantization: object, bits: float) -> None:
    found = model_of_config(LLAMA | {"quantization_config": quantization}, name="m", source="s")
    assert found.weight_bits == bits


@pytest.mark.parametrize("method", ["fp8", "compressed-tensors", "modelopt"])
def test_bits_that_the_operator_names_replace_those_of_the_file(method: str) -> None:
    entries = LLAMA | {"quantization_config": {"quant_method": method}}
    assert model_of_config(entries, name="m", source="s", weight_bits=6.0).weight_bits == 6.0


# As published: Pythia 6.9B, StarCoder2 3B, Llama 4 Maverick (400 B with 17 B active).
PYTHIA: dict[str, Any] = {
    "model_type": "gpt_neox",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "intermediate_size": 16_384,
    "vocab_size": 50_432,
    "max_position_embeddings": 2048,
}
STARCODER: dict[str, Any] = {
    "model_type": "starcoder2",
    "hidden_size": 3072,
    "num_hidden_layers": 30,
    "num_attention_heads": 24,
    "num_key_value_heads": 2,
    "intermediate_size": 12_288,
    "vocab_size": 49_152,
    "max_position_embeddings": 16_384,
}
MAVERICK: dict[str, Any] = {
    "model_type": "llama4_text",
    "hidden_size": 5120,
    "num_hidden_layers": 48,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 8192,
    "intermediate_size_mlp": 16_384,
    "vocab_size": 202_048,
    "num_local_experts": 128,
    "num_experts_per_tok": 1,
    "interleave_moe_layer_step": 2,
    "max_position_embeddings": 1 << 20,
    "attention_chunk_size": 8192,
}


@pytest.mark.parametrize(
    ("entries", "published"), [(PYTHIA, 6.857e9), (STARCODER, 3.03e9), (MAVERICK, 400.7e9)]
)
def test_kinds_with_other_feed_forwards_have_their_published_size(
    entries: dict[str, Any], published: float
) -> None:
    assert facts_of(entries).total_params == pytest.approx(published, rel=1e-3)


def test_every_fourth_layer_of_llama_4_sees_all() -> None:
    assert facts_of(MAVERICK).windows == (8192, 8192, 8192, None) * 12


def test_a_window_that_qwen_does_not_switch_on_is_none() -> None:
    entries = LLAMA | {"model_type": "qwen2", "sliding_window": 4096, "max_window_layers": 0}
    assert facts_of(entries).windows == (None,) * 32


def test_a_window_of_every_layer_is_read() -> None:
    assert facts_of(LLAMA | {"sliding_window": 4096}).windows == (4096,) * 32


def test_a_window_that_is_switched_off_is_none() -> None:
    off = LLAMA | {"sliding_window": 4096, "use_sliding_window": False}
    assert facts_of(off).windows == (None,) * 32


def test_a_window_of_the_last_layers_is_read() -> None:
    some = LLAMA | {
        "model_type": "qwen2",
        "sliding_window": 4096,
        "use_sliding_window": True,
        "max_window_layers": 30,
    }
    assert facts_of(some).windows == (None,) * 30 + (4096,) * 2


def test_shared_experts_and_dense_first_layers_are_counted() -> None:
    plain = facts_of(QWEN_MOE)
    shared = facts_of(QWEN_MOE | {"n_shared_experts": 1})
    assert shared.dense_params - plain.dense_params == 48 * 3 * 2048 * 768
    dense = facts_of(QWEN_MOE | {"first_k_dense_replace": 2})
    assert dense.expert is not None
    assert dense.expert.num_layers == 46


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"kv_lora_rank": 512}, r"multi-head latent attention \(MLA\), which is not covered"),
        ({"mamba_d_state": 128}, "state-space layers, which is not covered"),
        ({"layer_types": ["linear_attention"] * 32}, "layers of type 'linear_attention'"),
        ({"layer_types": ["full_attention"]}, "does not name each layer's type"),
        ({"hidden_size": None}, "has no usable 'hidden_size'"),
        ({"num_attention_heads": "32"}, "has no usable 'num_attention_heads'"),
        ({"num_hidden_layers": 0}, "number of layers must be from 1 to 10,000, it is 0"),
        ({"num_hidden_layers": 10**12}, "it is 1,000,000,000,000"),
        ({"hidden_size": 10**400}, "has no usable 'hidden_size'"),
        ({"intermediate_size": None, "ffn_dim": 64}, "has no usable 'intermediate_size'"),
        ({"tie_word_embeddings": "false"}, "has no usable 'tie_word_embeddings'"),
        ({"layer_types": [{}] * 32}, "layers of type {}"),
        ({"num_experts": 8, "num_experts_per_tok": 2, "mlp_only_layers": 5}, "'mlp_only_layers'"),
        ({"moe_num_experts": 64, "moe_k": 6}, "'moe_num_experts', which is not understood"),
        ({"is_encoder_decoder": True}, "an encoder, which is not covered"),
        ({"lru_width": 2560}, "recurrent layers"),
        ({"model_type": "distilbert"}, "is a distilbert, which writes no text"),
        ({"num_key_value_heads": 0}, "number of KV heads must be at least 1"),
        ({"quantization_config": {"quant_method": "new"}}, "name --weight-bits"),
        ({"num_experts": 4, "num_experts_per_tok": 8}, "8 of 4 experts cannot be used"),
    ],
)
def test_what_is_not_covered_is_said(entries: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        facts_of(LLAMA | entries)
