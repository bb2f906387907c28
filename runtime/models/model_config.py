"""Typed access to a Hugging Face config.json, and what all architectures read from it.

Called by runtime/huggingface_source.py and by the architectures. Errors are ValueErrors that the
caller turns into a line with the file's name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from runtime.errors import ModelError
from runtime.models.blueprint import Sizes

# Entries whose values (other than absent or null) change what is computed.
PLAIN_VALUES: Mapping[str, tuple[object, ...]] = {
    "mlp_bias": (False,),
    "lm_head_bias": (False,),
    "hidden_act": ("silu",),
    "partial_rotary_factor": (1.0,),
    "use_qk_norm": (False,),
    "quantization_config": (),
}


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The entries of one config.json, and the safetensors files beside it."""

    entries: Mapping[str, Any]
    weight_files: tuple[Path, ...] = ()

    def with_defaults(self, defaults: Mapping[str, Any]) -> "ModelConfig":
        """What the architecture takes for entries that the file leaves out."""
        return replace(self, entries={**defaults, **self.entries})

    def tensor_names(self) -> frozenset[str]:
        """The names in the weight files, where the architecture has to tell writers apart.
        Raises: ModelError for a damaged file."""
        names: set[str] = set()
        for file in self.weight_files:
            try:
                shard: Any = safe_open(file, framework="np")  # untyped
                names.update(shard.keys())
            except (SafetensorError, OSError) as error:
                raise ModelError(f"{file}: is damaged ({error}); download it again") from None
        return frozenset(names)

    def get(self, key: str) -> Any:
        return self.entries.get(key)

    def integer(self, key: str, default: int | None = None) -> int:
        value = self.get(key)
        if value is None:
            value = default
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"{key} must be a whole number, it is {value!r}")
        return value

    def number(self, key: str, default: float) -> float:
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ValueError(f"{key} must be a number, it is {value!r}")
        return float(value)

    def flag(self, key: str, *, default: bool = False) -> bool:
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise ValueError(f"{key} must be true or false, it is {value!r}")
        return value

    def refuse_variants(self, plain_values: Mapping[str, tuple[object, ...]]) -> None:
        """Raises: ValueError for the first entry with a value that is not plain."""
        for key, plain in plain_values.items():
            value = self.get(key)
            if value is not None and value not in plain:
                raise ValueError(f"{key} = {value!r} is not supported")

    def sizes(self, *, tied_embeddings: bool = False) -> Sizes:
        """`tied_embeddings` is what the architecture does where the file does not say."""
        hidden_size = self.integer("hidden_size")
        num_heads = self.integer("num_attention_heads")
        return Sizes(
            hidden_size=hidden_size,
            num_layers=self.integer("num_hidden_layers"),
            num_heads=num_heads,
            num_kv_heads=self.integer("num_key_value_heads", num_heads),
            head_dim=self.integer("head_dim", hidden_size // num_heads),
            ffn_size=self.integer("intermediate_size"),
            vocab_size=self.integer("vocab_size"),
            max_position=self.integer("max_position_embeddings", 2048),
            norm_eps=self.number("rms_norm_eps", 1e-6),
            tied_embeddings=self.flag("tie_word_embeddings", default=tied_embeddings),
        ).check()

    def windows(self, num_layers: int) -> tuple[int | None, ...]:
        """The window of each layer: that of `layer_types`, or one for all.
        Raises: ValueError for another type of layer."""
        window = None if self.get("sliding_window") is None else self.integer("sliding_window")
        if window is not None and window < 1:
            raise ValueError(f"sliding_window must be at least 1, it is {window}")
        types = self.get("layer_types")
        if types is None:
            return (window,) * num_layers
        known: dict[object, int | None] = {"full_attention": None, "sliding_attention": window}
        if not isinstance(types, list) or len(types) != num_layers:
            raise ValueError(f"layer_types must name a type for each of {num_layers} layers")
        for kind in types:
            if kind not in known:
                raise ValueError(f"a layer of type {kind!r} (layer_types) is not supported")
        return tuple(known[kind] for kind in types)

    def rope(self) -> dict[str, Any]:
        """The rotary parameters under their newer names, whichever way the file has them."""
        found = self.get("rope_scaling") or self.get("rope_parameters") or {}
        return standard_rope(found, theta=self.number("rope_theta", 10_000.0))


def standard_rope(found: object, *, theta: float) -> dict[str, Any]:
    """Rotary parameters with `rope_type` and `rope_theta` set; older files say `type`, and leave
    out the base. Raises: ValueError for parameters of another form."""
    if not isinstance(found, Mapping) or any(isinstance(v, Mapping) for v in found.values()):
        raise ValueError(f"rotary parameters of this form are not supported: {found!r}")
    kind = found.get("rope_type") or found.get("type") or "default"
    return {**found, "rope_type": kind, "rope_theta": found.get("rope_theta") or theta}
