"""The gemma3 architecture: most layers see a window and have rotary frequencies of their own,
norms on the heads of q and k, norms before and after each part, a scaled embedding.

Of models with images the text part is read.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runtime.decoder_spec import DecoderSpec, LayerSpec, RotarySpec
from runtime.errors import ModelError
from runtime.models.blueprint import Blueprint, Sizes
from runtime.models.gguf_metadata import GgufMetadata
from runtime.models.model_config import PLAIN_VALUES, ModelConfig, standard_rope
from runtime.models.rotary import config_rotary, gguf_rotary, plain_rotary
from runtime.models.weight_names import GGUF_NAMING, HUGGING_FACE_NAMING, map_weights

_LOCAL_THETA, _GLOBAL_THETA = 10_000.0, 1_000_000.0
_PATTERN = 6  # every sixth layer sees all tokens (Gemma 3 report, arXiv:2503.19786, 2)
# What config.json may leave out.
_DEFAULTS: Mapping[str, Any] = {
    "vocab_size": 262_208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131_072,
    "sliding_window": 4096,
    "hidden_activation": "gelu_pytorch_tanh",
}
_PLAIN_VALUES: Mapping[str, tuple[object, ...]] = {
    "hidden_activation": ("gelu_pytorch_tanh",),
    "use_bidirectional_attention": (False,),
    "quantization_config": PLAIN_VALUES["quantization_config"],
}
_HANDLED = ("attention.sliding_window", "final_logit_softcapping", "attn_logit_softcapping")
_IMAGE_PREFIXES = ("vision_tower.", "multi_modal_projector.")
_NAMING = replace(
    HUGGING_FACE_NAMING.with_layer(ffn_norm="pre_feedforward_layernorm"), norm_offset=1.0
)


def from_gguf(metadata: GgufMetadata) -> Blueprint:
    """Raises: ModelError for a variant that is not implemented."""
    metadata.refuse_variants(handled=_HANDLED)
    sizes = metadata.sizes()
    window = metadata.integer(metadata.own("attention.sliding_window"), 0) or None
    theta = metadata.number(metadata.own("rope.freq_base_swa"), _LOCAL_THETA)
    layers = _layers(
        sizes,
        windows=_gguf_windows(metadata, sizes, window),
        local=plain_rotary(theta=theta, head_dim=sizes.head_dim),
        everywhere=gguf_rotary(metadata, sizes),
    )
    # The converter leaves out the scale; the 27B model alone takes it from the hidden size.
    scaled_size = sizes.hidden_size // sizes.num_heads if sizes.num_layers == 62 else sizes.head_dim
    spec = replace(
        _spec(sizes, layers, attention_scale=scaled_size**-0.5),
        logit_softcap=metadata.number(metadata.own("final_logit_softcapping"), 0.0) or None,
        attention_softcap=metadata.number(metadata.own("attn_logit_softcapping"), 0.0) or None,
    )
    return Blueprint(spec, map_weights(spec, GGUF_NAMING, ignored=("rope_freqs.weight",)))


def from_config(config: ModelConfig) -> Blueprint:
    """Raises: ValueError for a variant that is not implemented."""
    text = config.get("text_config") or config.entries
    if not isinstance(text, Mapping):
        raise ValueError("text_config must be an object")
    config = replace(config, entries={**_DEFAULTS, **text})
    config.refuse_variants(_PLAIN_VALUES)
    sizes = config.sizes(tied_embeddings=True)
    local, everywhere = _rotaries(config, sizes)
    layers = _layers(sizes, windows=_windows(config, sizes), local=local, everywhere=everywhere)
    has_bias = config.flag("attention_bias")
    spec = replace(
        _spec(sizes, layers, attention_scale=config.number("query_pre_attn_scalar", 256.0) ** -0.5),
        has_qkv_bias=has_bias,
        has_attention_output_bias=has_bias,
        logit_softcap=config.number("final_logit_softcapping", 0.0) or None,
        attention_softcap=config.number("attn_logit_softcapping", 0.0) or None,
    )
    return _with_names_found(spec, config.tensor_names())


def _spec(sizes: Sizes, layers: tuple[LayerSpec, ...], *, attention_scale: float) -> DecoderSpec:
    return replace(
        sizes.plain_spec(layers),
        activation="gelu_tanh",
        embedding_scale=math.sqrt(sizes.hidden_size),
        has_qk_norm=True,
        has_post_norms=True,
        attention_scale=attention_scale,
    )


def _layers(
    sizes: Sizes,
    *,
    windows: tuple[int | None, ...],
    local: RotarySpec,
    everywhere: RotarySpec,
) -> tuple[LayerSpec, ...]:
    return tuple(
        LayerSpec(everywhere if window is None else local, window)
        for window in windows[: sizes.num_layers]
    )


def _gguf_windows(
    metadata: GgufMetadata, sizes: Sizes, window: int | None
) -> tuple[int | None, ...]:
    """The pattern is a number, or a list that says of each layer whether it has the window."""
    key = metadata.own("attention.sliding_window_pattern")
    pattern = metadata.get(key)
    if not isinstance(pattern, list):
        return _every(metadata.integer(key, _PATTERN), window, sizes.num_layers)
    if len(pattern) != sizes.num_layers:
        raise ModelError(
            f"{metadata.file.path}: {key} has {len(pattern)} entries for {sizes.num_layers} layers"
        )
    return tuple(window if has_window else None for has_window in pattern)


def _windows(config: ModelConfig, sizes: Sizes) -> tuple[int | None, ...]:
    windows = config.windows(sizes.num_layers)
    if config.get("layer_types") is not None:
        return windows
    pattern = config.integer("sliding_window_pattern", _PATTERN)
    return _every(pattern, windows[0], sizes.num_layers)


def _every(pattern: int, window: int | None, num_layers: int) -> tuple[int | None, ...]:
    """Each `pattern`-th layer sees all tokens, the others their window."""
    if pattern < 1:
        raise ValueError(f"the pattern of sliding windows must be at least 1, it is {pattern}")
    return tuple(None if (i + 1) % pattern == 0 else window for i in range(num_layers))


def _rotaries(config: ModelConfig, sizes: Sizes) -> tuple[RotarySpec, RotarySpec]:
    """Of layers with a window and of the others: under a key for each type of layer, or in the
    older form, where the scaling is that of the others."""
    found = config.get("rope_parameters")
    if isinstance(found, Mapping) and found.keys() & {"full_attention", "sliding_attention"}:
        ropes = [
            standard_rope(found.get(kind) or {}, theta=theta)
            for kind, theta in (
                ("sliding_attention", _LOCAL_THETA),
                ("full_attention", _GLOBAL_THETA),
            )
        ]
    else:
        local = config.number("rope_local_base_freq", _LOCAL_THETA)
        everywhere = config.with_defaults({"rope_theta": _GLOBAL_THETA}).rope()
        ropes = [standard_rope({}, theta=local), everywhere]
    first, second = (config_rotary(rope, head_dim=sizes.head_dim) for rope in ropes)
    return first, second


def _with_names_found(spec: DecoderSpec, found: frozenset[str]) -> Blueprint:
    """Models with images put the text part under a prefix, which differs between writers."""
    prefixes = (("language_model.model.", ""), ("model.language_model.", "model."))
    matching = [pair for pair in prefixes if f"{pair[0]}norm.weight" in found]
    if not matching:
        return Blueprint(spec, map_weights(spec, _NAMING))
    prefix, image_prefix = matching[0]
    naming = replace(
        _NAMING,
        embedding=f"{prefix}embed_tokens",
        final_norm=f"{prefix}norm",
        output="lm_head" if image_prefix else "language_model.lm_head",
        layer_prefix=prefix + "layers.{}.",
    )
    images = tuple(image_prefix + start for start in _IMAGE_PREFIXES)
    ignored = (name for name in found if name.startswith(images))
    return Blueprint(spec, map_weights(spec, naming, ignored=ignored))
