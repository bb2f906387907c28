"""The qwen2 architecture (Qwen 2 and 2.5): llama with biases on q, k and v."""

from dataclasses import replace

from runtime.decoder_spec import LayerSpec
from runtime.models.blueprint import Blueprint
from runtime.models.gguf_metadata import GgufMetadata
from runtime.models.model_config import PLAIN_VALUES, ModelConfig
from runtime.models.rotary import config_rotary, gguf_rotary
from runtime.models.weight_names import GGUF_NAMING, HUGGING_FACE_NAMING, map_weights

_DEFAULTS = {"max_position_embeddings": 32_768}


def from_gguf(metadata: GgufMetadata) -> Blueprint:
    """Raises: ModelError for a variant that is not implemented."""
    metadata.refuse_variants()
    sizes = metadata.sizes()
    layer = LayerSpec(gguf_rotary(metadata, sizes))
    spec = replace(sizes.plain_spec((layer,) * sizes.num_layers), has_qkv_bias=True)
    return Blueprint(spec, map_weights(spec, GGUF_NAMING, ignored=("rope_freqs.weight",)))


def from_config(config: ModelConfig) -> Blueprint:
    """Raises: ValueError for a variant that is not implemented."""
    config = config.with_defaults(_DEFAULTS)
    config.refuse_variants(PLAIN_VALUES)
    sizes = config.sizes()
    rotary = config_rotary(config.rope(), head_dim=sizes.head_dim)
    windows = upper_windows(config, sizes.num_layers)
    spec = replace(
        sizes.plain_spec(tuple(LayerSpec(rotary, window) for window in windows)),
        has_qkv_bias=True,
    )
    return Blueprint(spec, map_weights(spec, HUGGING_FACE_NAMING))


def upper_windows(config: ModelConfig, num_layers: int) -> tuple[int | None, ...]:
    """Only with `use_sliding_window`, and without `layer_types` only from `max_window_layers` on
    (qwen2 and qwen3)."""
    if not config.flag("use_sliding_window"):
        return (None,) * num_layers
    windows = config.with_defaults({"sliding_window": 4096}).windows(num_layers)
    if config.get("layer_types") is not None:
        return windows
    first = config.integer("max_window_layers", 28)
    return tuple(window if index >= first else None for index, window in enumerate(windows))
