"""The qwen3_moe architecture: qwen3 with experts in some or all layers."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runtime.decoder_spec import ExpertSpec, LayerSpec
from runtime.models.blueprint import Blueprint
from runtime.models.gguf_metadata import GgufMetadata
from runtime.models.model_config import PLAIN_VALUES, ModelConfig
from runtime.models.rotary import config_rotary, gguf_rotary
from runtime.models.weight_names import GGUF_NAMING, HUGGING_FACE_NAMING, Naming, map_weights

_DEFAULTS: Mapping[str, Any] = {
    "num_key_value_heads": 4,
    "head_dim": 128,
    "max_position_embeddings": 32_768,
    "decoder_sparse_step": 1,
}
_HANDLED = ("expert_count", "expert_used_count")


def from_gguf(metadata: GgufMetadata) -> Blueprint:
    """Raises: ModelError for a variant that is not implemented."""
    metadata.refuse_variants(handled=_HANDLED)
    sizes = metadata.sizes()
    rotary = gguf_rotary(metadata, sizes)
    experts = ExpertSpec(
        num_experts=metadata.integer(metadata.own("expert_count")),
        num_used=metadata.integer(metadata.own("expert_used_count")),
        ffn_size=metadata.integer(metadata.own("expert_feed_forward_length")),
        # Files without the entry are of models that normalize.
        normalize=metadata.get(metadata.own("expert_weights_norm")) is not False,
    ).check()
    layers = tuple(
        LayerSpec(rotary, has_experts=f"blk.{i}.ffn_gate_inp.weight" in metadata.file.tensors)
        for i in range(sizes.num_layers)
    )
    spec = replace(sizes.plain_spec(layers), has_qk_norm=True, experts=experts)
    return Blueprint(spec, map_weights(spec, GGUF_NAMING))


def from_config(config: ModelConfig) -> Blueprint:
    """Raises: ValueError for a variant that is not implemented."""
    config = config.with_defaults(_DEFAULTS)
    config.refuse_variants(PLAIN_VALUES)
    sizes = config.sizes()
    spec = replace(
        sizes.plain_spec(_layers(config, sizes.num_layers, head_dim=sizes.head_dim)),
        has_qk_norm=True,
        has_qkv_bias=config.flag("attention_bias"),
        has_attention_output_bias=config.flag("attention_bias"),
        experts=ExpertSpec(
            num_experts=config.integer("num_experts", config.integer("num_local_experts", 128)),
            num_used=config.integer("num_experts_per_tok", 8),
            ffn_size=config.integer("moe_intermediate_size", 768),
            normalize=config.flag("norm_topk_prob"),
        ).check(),
    )
    return Blueprint(spec, map_weights(spec, _naming(config.tensor_names())))


def _layers(config: ModelConfig, num_layers: int, *, head_dim: int) -> tuple[LayerSpec, ...]:
    """Every `decoder_sparse_step`-th layer has experts, but for those in `mlp_only_layers`."""
    rotary = config_rotary(config.rope(), head_dim=head_dim)
    dense = config.get("mlp_only_layers") or []
    step = config.integer("decoder_sparse_step")
    windows: tuple[int | None, ...] = (None,) * num_layers
    if config.flag("use_sliding_window"):
        windows = config.with_defaults({"sliding_window": 4096}).windows(num_layers)
    return tuple(
        LayerSpec(rotary, window, has_experts=i not in dense and (i + 1) % step == 0)
        for i, window in enumerate(windows)
    )


def _naming(found: frozenset[str]) -> Naming:
    """Newer writers may stack the experts."""
    if not any(name.endswith(".mlp.experts.gate_up_proj") for name in found):
        return HUGGING_FACE_NAMING
    return HUGGING_FACE_NAMING.with_layer(
        expert_gate_up=("mlp.experts.gate_up_proj",), expert_down="mlp.experts.down_proj"
    )
