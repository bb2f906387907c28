"""The llama architecture: Llama 2 and 3, TinyLlama, SmolLM2. Called by the registry.

GGUF files call Mistral and Mixtral llama as well.
"""

from collections.abc import Container
from dataclasses import replace

from runtime.decoder_spec import ExpertSpec, LayerSpec
from runtime.models.blueprint import Blueprint
from runtime.models.gguf_metadata import GgufMetadata
from runtime.models.model_config import PLAIN_VALUES, ModelConfig
from runtime.models.rotary import config_rotary, gguf_rotary
from runtime.models.weight_names import GGUF_NAMING, HUGGING_FACE_NAMING, Naming, map_weights

_HANDLED = ("expert_count", "expert_used_count", "attention.sliding_window")


def from_gguf(metadata: GgufMetadata) -> Blueprint:
    """Raises: ModelError for a variant that is not implemented."""
    metadata.refuse_variants(handled=_HANDLED)
    sizes = metadata.sizes()
    num_experts = metadata.integer(metadata.own("expert_count"), 0)
    layer = LayerSpec(
        gguf_rotary(metadata, sizes),
        window=metadata.integer(metadata.own("attention.sliding_window"), 0) or None,
        has_experts=num_experts > 0,
    )
    spec = replace(
        sizes.plain_spec((layer,) * sizes.num_layers),
        has_qkv_bias="blk.0.attn_q.bias" in metadata.file.tensors,
        has_attention_output_bias="blk.0.attn_output.bias" in metadata.file.tensors,
    )
    if num_experts:
        num_used = metadata.integer(metadata.own("expert_used_count"))
        experts = ExpertSpec(num_experts, num_used, sizes.ffn_size, normalize=True)
        spec = replace(spec, experts=experts.check())
    naming = _gguf_naming(metadata.file.tensors)
    return Blueprint(spec, map_weights(spec, naming, ignored=("rope_freqs.weight",)))


def _gguf_naming(found: Container[str]) -> Naming:
    """Mixtral files of 2023 have a tensor for each expert's matrix."""
    naming = replace(GGUF_NAMING, interleaves_pairs=True)
    if "blk.0.ffn_gate.0.weight" not in found:
        return naming
    return naming.with_layer(
        expert_gate_up=("ffn_gate.{}.weight", "ffn_up.{}.weight"), expert_down="ffn_down.{}.weight"
    )


def from_config(config: ModelConfig) -> Blueprint:
    """Raises: ValueError for a variant that is not implemented."""
    config.refuse_variants({**PLAIN_VALUES, "sliding_window": ()})
    sizes = config.sizes()
    layer = LayerSpec(config_rotary(config.rope(), head_dim=sizes.head_dim))
    has_bias = config.flag("attention_bias")
    spec = replace(
        sizes.plain_spec((layer,) * sizes.num_layers),
        has_qkv_bias=has_bias,
        has_attention_output_bias=has_bias,
    )
    return Blueprint(spec, map_weights(spec, HUGGING_FACE_NAMING))
