"""The phi3 architecture (Phi-3, Phi-3.5 and Phi-4): q, k and v in one matrix, gate and up in
another, and two sets of rotary frequencies, for short and for long contexts (longrope)."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runtime.decoder_spec import DecoderSpec, LayerSpec, LongContext, RotarySpec
from runtime.errors import ModelError
from runtime.models.blueprint import Blueprint, Sizes
from runtime.models.gguf_metadata import GgufMetadata
from runtime.models.model_config import PLAIN_VALUES, ModelConfig
from runtime.models.rotary import divided, plain_rotary, rope_number
from runtime.models.weight_names import GGUF_NAMING, HUGGING_FACE_NAMING, map_weights

_DEFAULTS: Mapping[str, Any] = {
    "original_max_position_embeddings": 4096,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
}
# The part of each head that turns is read here; the longrope of older files has other names.
_PLAIN_VALUES = {
    **{key: plain for key, plain in PLAIN_VALUES.items() if key != "partial_rotary_factor"},
    "attention_bias": (False,),
}
_LONGROPE_NAMES = ("longrope", "su", "yarn")
_FACTORS = ("rope_factors_short.weight", "rope_factors_long.weight")
_GGUF_NAMING = GGUF_NAMING.with_layer(qkv=("attn_qkv",), gate_up=("ffn_up",))
_NAMING = HUGGING_FACE_NAMING.with_layer(qkv=("self_attn.qkv_proj",), gate_up=("mlp.gate_up_proj",))


def from_gguf(metadata: GgufMetadata) -> Blueprint:
    """Raises: ModelError for a variant that is not implemented."""
    metadata.refuse_variants(handled=("attention.sliding_window",))
    kind = metadata.string(metadata.own("rope.scaling.type"), "none")
    if kind not in ("none", "longrope"):
        raise ModelError(
            f"{metadata.file.path}: {metadata.own('rope.scaling.type')} = {kind!r} is not supported"
        )
    sizes = metadata.sizes()
    rotary_dim = metadata.integer(metadata.own("rope.dimension_count"), sizes.head_dim)
    if not 0 < rotary_dim <= sizes.head_dim:
        raise ModelError(
            f"{metadata.file.path}: {metadata.own('rope.dimension_count')} = {rotary_dim} is not"
            f" between 1 and the head size {sizes.head_dim}"
        )
    theta = metadata.number(metadata.own("rope.freq_base"), 10_000.0)
    short, long = (metadata.factors(name, length=rotary_dim // 2) for name in _FACTORS)
    spec = _spec(
        sizes,
        plain=plain_rotary(theta=theta, head_dim=rotary_dim),
        windows=(metadata.integer(metadata.own("attention.sliding_window"), 0) or None,)
        * sizes.num_layers,
        factors=(short, long),
        magnitude=metadata.number(metadata.own("rope.scaling.attn_factor"), 1.0),
        trained_len=metadata.integer(
            metadata.own("rope.scaling.original_context_length"), sizes.max_position
        ),
    )
    return Blueprint(spec, map_weights(spec, _GGUF_NAMING, ignored=_FACTORS))


def from_config(config: ModelConfig) -> Blueprint:
    """Raises: ValueError for a variant that is not implemented."""
    config = config.with_defaults(_DEFAULTS)
    config.refuse_variants(_PLAIN_VALUES)
    sizes, rope = config.sizes(), config.rope()
    trained_len = config.integer("original_max_position_embeddings")
    if rope["rope_type"] not in ("default", *_LONGROPE_NAMES):
        raise ValueError(f"rope scaling of type {rope['rope_type']!r} is not supported")
    is_scaled = rope["rope_type"] != "default"
    share = rope_number(rope, "partial_rotary_factor", config.number("partial_rotary_factor", 1.0))
    if not 0 < share <= 1:
        raise ValueError(f"partial_rotary_factor must be above 0 and at most 1, it is {share}")
    rotary_dim = int(sizes.head_dim * share)
    spec = _spec(
        sizes,
        plain=plain_rotary(theta=rope_number(rope, "rope_theta"), head_dim=rotary_dim),
        windows=config.windows(sizes.num_layers),
        factors=(_factors(rope, "short_factor"), _factors(rope, "long_factor"))
        if is_scaled
        else (None, None),
        magnitude=_magnitude(rope, sizes, trained_len) if is_scaled else 1.0,
        trained_len=trained_len,
    )
    return Blueprint(spec, map_weights(spec, _NAMING))


def _spec(
    sizes: Sizes,
    *,
    plain: RotarySpec,
    windows: tuple[int | None, ...],
    factors: tuple[tuple[float, ...] | None, tuple[float, ...] | None],
    magnitude: float,
    trained_len: int,
) -> DecoderSpec:
    num_turning, num_pairs = len(plain.inverse_frequencies), sizes.head_dim // 2
    if num_turning == 0:
        raise ValueError("no dimension of a head turns, which is not supported")

    def rotary(divisors: tuple[float, ...] | None) -> RotarySpec:
        turning = plain if divisors is None else divided(plain, divisors)
        passing = (0.0,) * (num_pairs - num_turning)
        return RotarySpec(turning.inverse_frequencies + passing, magnitude)

    short, long = factors
    spec = sizes.plain_spec(tuple(LayerSpec(rotary(short), window) for window in windows))
    if long is None:
        return spec
    return replace(spec, long_context=LongContext(above=trained_len, rotary=rotary(long)))


def _factors(rope: Mapping[str, Any], key: str) -> tuple[float, ...]:
    factors = rope.get(key)
    if not isinstance(factors, list) or not all(isinstance(f, int | float) for f in factors):
        raise ValueError(f"the rotary parameter {key} must be a list of numbers")
    return tuple(float(factor) for factor in factors)


def _magnitude(rope: Mapping[str, Any], sizes: Sizes, trained_len: int) -> float:
    """LongRoPE, arXiv:2402.13753, 4: sqrt(1 + ln s / ln L) for a context stretched s-fold."""
    if rope.get("attention_factor") is not None:
        return rope_number(rope, "attention_factor")
    stretch = rope_number(rope, "factor", sizes.max_position / trained_len)
    return math.sqrt(1 + math.log(stretch) / math.log(trained_len)) if stretch > 1 else 1.0
