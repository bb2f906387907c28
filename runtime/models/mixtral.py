"""The mixtral architecture: mistral with experts. In GGUF files it is called llama."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runtime.decoder_spec import ExpertSpec, LayerSpec
from runtime.models.blueprint import Blueprint
from runtime.models.model_config import PLAIN_VALUES, ModelConfig
from runtime.models.rotary import config_rotary
from runtime.models.weight_names import HUGGING_FACE_NAMING, Naming, map_weights

_DEFAULTS: Mapping[str, Any] = {
    "num_key_value_heads": 8,
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1e6,
}


def from_config(config: ModelConfig) -> Blueprint:
    """Raises: ValueError for a variant that is not implemented."""
    config = config.with_defaults(_DEFAULTS)
    config.refuse_variants({**PLAIN_VALUES, "attention_bias": (False,)})
    sizes = config.sizes()
    rotary = config_rotary(config.rope(), head_dim=sizes.head_dim)
    experts = ExpertSpec(
        num_experts=config.integer("num_local_experts", 8),
        num_used=config.integer("num_experts_per_tok", 2),
        ffn_size=sizes.ffn_size,
        normalize=True,
    ).check()
    layers = tuple(
        LayerSpec(rotary, window, has_experts=True) for window in config.windows(sizes.num_layers)
    )
    spec = replace(sizes.plain_spec(layers), experts=experts)
    return Blueprint(spec, map_weights(spec, _naming(config.tensor_names())))


def _naming(found: frozenset[str]) -> Naming:
    """Older writers name each expert's matrices, newer ones may stack the experts."""
    block = "mlp" if "model.layers.0.mlp.gate.weight" in found else "block_sparse_moe"
    experts = f"{block}.experts"
    if f"model.layers.0.{experts}.gate_up_proj" in found:
        return HUGGING_FACE_NAMING.with_layer(
            router=f"{block}.gate",
            expert_gate_up=(f"{experts}.gate_up_proj",),
            expert_down=f"{experts}.down_proj",
        )
    return HUGGING_FACE_NAMING.with_layer(
        router=f"{block}.gate",
        expert_gate_up=(experts + ".{}.w1.weight", experts + ".{}.w3.weight"),
        expert_down=experts + ".{}.w2.weight",
    )
