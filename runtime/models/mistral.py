"""The mistral architecture: llama with a window. In GGUF files it is called llama."""

from runtime.decoder_spec import LayerSpec
from runtime.models.blueprint import Blueprint
from runtime.models.model_config import PLAIN_VALUES, ModelConfig
from runtime.models.rotary import config_rotary
from runtime.models.weight_names import HUGGING_FACE_NAMING, map_weights

_DEFAULTS = {"sliding_window": 4096, "num_key_value_heads": 8}


def from_config(config: ModelConfig) -> Blueprint:
    """Raises: ValueError for a variant that is not implemented."""
    config = config.with_defaults(_DEFAULTS)
    config.refuse_variants({**PLAIN_VALUES, "attention_bias": (False,)})
    sizes = config.sizes()
    rotary = config_rotary(config.rope(), head_dim=sizes.head_dim)
    windows = config.windows(sizes.num_layers)
    spec = sizes.plain_spec(tuple(LayerSpec(rotary, window) for window in windows))
    return Blueprint(spec, map_weights(spec, HUGGING_FACE_NAMING))
