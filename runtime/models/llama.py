"""The llama architecture: Llama 2 and 3, TinyLlama, SmolLM2."""

from dataclasses import replace

from runtime.decoder_spec import LayerSpec
from runtime.errors import ModelError
from runtime.models.blueprint import Blueprint
from runtime.models.gguf_metadata import GgufMetadata
from runtime.models.model_config import PLAIN_VALUES, ModelConfig
from runtime.models.rotary import plain_rotary
from runtime.models.weight_names import GGUF_NAMING, HUGGING_FACE_NAMING, map_weights


def from_gguf(metadata: GgufMetadata) -> Blueprint:
    """Raises: ModelError for a variant that is not implemented."""
    metadata.refuse_variants()
    if "rope_freqs.weight" in metadata.file.tensors:
        raise ModelError(
            f"{metadata.file.path}: rope scaling (tensor 'rope_freqs.weight') is not supported"
        )
    sizes = metadata.sizes()
    theta = metadata.number(metadata.own("rope.freq_base"), 10_000.0)
    rotary = plain_rotary(theta=theta, head_dim=sizes.head_dim)
    spec = sizes.plain_spec((LayerSpec(rotary),) * sizes.num_layers)
    return Blueprint(spec, map_weights(spec, replace(GGUF_NAMING, interleaves_pairs=True)))


def from_config(config: ModelConfig) -> Blueprint:
    """Raises: ValueError for a variant that is not implemented."""
    config.refuse_variants(PLAIN_VALUES)
    sizes, rope = config.sizes(), config.rope()
    if rope["rope_type"] != "default":
        raise ValueError(f"rope scaling of type {rope['rope_type']!r} is not supported")
    rotary = plain_rotary(theta=float(rope["rope_theta"]), head_dim=sizes.head_dim)
    spec = sizes.plain_spec((LayerSpec(rotary),) * sizes.num_layers)
    return Blueprint(spec, map_weights(spec, HUGGING_FACE_NAMING))
