"""The qwen3 architecture: llama with norms on the heads of q and k."""

from dataclasses import replace

from runtime.decoder_spec import LayerSpec
from runtime.models.blueprint import Blueprint
from runtime.models.gguf_metadata import GgufMetadata
from runtime.models.model_config import PLAIN_VALUES, ModelConfig
from runtime.models.qwen2 import upper_windows
from runtime.models.rotary import config_rotary, gguf_rotary
from runtime.models.weight_names import GGUF_NAMING, HUGGING_FACE_NAMING, map_weights

_DEFAULTS = {"head_dim": 128, "max_position_embeddings": 32_768}


def from_gguf(metadata: GgufMetadata) -> Blueprint:
    """Raises: ModelError for a variant that is not implemented."""
    metadata.refuse_variants()
    sizes = metadata.sizes()
    layer = LayerSpec(gguf_rotary(metadata, sizes))
    spec = replace(sizes.plain_spec((layer,) * sizes.num_layers), has_qk_norm=True)
    return Blueprint(spec, map_weights(spec, GGUF_NAMING, ignored=("rope_freqs.weight",)))


def from_config(config: ModelConfig) -> Blueprint:
    """Raises: ValueError for a variant that is not implemented."""
    config = config.with_defaults(_DEFAULTS)
    config.refuse_variants(PLAIN_VALUES)
    sizes = config.sizes()
    rotary = config_rotary(config.rope(), head_dim=sizes.head_dim)
    windows = upper_windows(config, sizes.num_layers)
    has_bias = config.flag("attention_bias")
    spec = replace(
        sizes.plain_spec(tuple(LayerSpec(rotary, window) for window in windows)),
        has_qk_norm=True,
        has_qkv_bias=has_bias,
        has_attention_output_bias=has_bias,
    )
    return Blueprint(spec, map_weights(spec, HUGGING_FACE_NAMING))
