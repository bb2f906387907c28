"""Reads what the planner needs of a Hugging Face config.json, also of architectures that this
server cannot run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planning.errors import PlanError
from planning.model_facts import DecoderSizes, ModelFacts, checked_layers

# Entries of models that keep something else than keys and values of each token.
_NOT_COVERED = {
    "kv_lora_rank": "multi-head latent attention (MLA)",
    "mamba_d_state": "state-space layers",
    "ssm_state_size": "state-space layers",
    "state_size": "state-space layers",
    "linear_num_key_heads": "linear attention",
    "attn_type_list": "linear attention",
    "lru_width": "recurrent layers",
    "is_encoder_decoder": "an encoder",
}
# Kinds whose feed-forward has no gate: two matrices in place of three.
_UNGATED = frozenset({"apertus", "arcee", "gpt_neox", "nemotron", "persimmon", "phi", "starcoder2"})
# Kinds whose output is the embedding unless the file says something else.
_TIED = ("gemma", "cohere", "starcoder2")
_MAX_SIZE = 1 << 40
_LAYER_TYPES = {"full_attention": False, "sliding_attention": True, "chunked_attention": True}
# Of each window and one full layer, where the file does not say which layers have one.
_PERIODS = {"gemma2": 2, "gemma3": 6, "gemma3_text": 6, "gpt_oss": 2, "llama4_text": 4}
_BITS_OF = {"fp8": 8.0, "fbgemm_fp8": 8.0, "awq": 4.5, "gptq": 4.5}


@dataclass(frozen=True, slots=True)
class ConfiguredModel:
    """`weight_bits`: what quantization_config says the layers' weights have; 16 without one."""

    facts: ModelFacts
    weight_bits: float


def model_of_config(
    entries: Mapping[str, Any], *, name: str, source: str, weight_bits: float | None = None
) -> ConfiguredModel:
    """`weight_bits` replaces what the file says of quantization. Raises: PlanError for a file that
    lacks a size, or a kind of model that is not covered."""
    text = entries.get("text_config")
    reader = _Config({**entries, **text} if isinstance(text, Mapping) else entries, name)
    reader.refuse_other_kinds()
    bits, expert_bits = reader.weight_bits(weight_bits)
    experts = reader.experts()
    sizes = DecoderSizes(
        hidden_size=reader.integer("hidden_size"),
        num_layers=reader.num_layers(),
        num_heads=reader.integer("num_attention_heads"),
        num_kv_heads=reader.integer("num_key_value_heads", reader.integer("num_attention_heads")),
        head_dim=reader.head_dim(),
        ffn_size=reader.ffn_size(has_experts=bool(experts)),
        vocab_size=reader.integer("vocab_size"),
        max_context=reader.integer("max_position_embeddings", 1 << 20),
        tied_embeddings=reader.flag("tie_word_embeddings", reader.kind.startswith(_TIED)),
        has_gate=reader.kind not in _UNGATED,
        has_qkv_bias=reader.flag("attention_bias", reader.kind in ("qwen2", "qwen2_moe")),
        has_output_bias=reader.flag("attention_bias", False),
        has_qk_norm=reader.kind.startswith(("qwen3", "gemma3")),
        has_post_norms=reader.kind.startswith(("gemma2", "gemma3")),
        has_sinks=reader.kind == "gpt_oss",
        windows=reader.windows(),
        expert_bits=expert_bits,
        **experts,
    )
    return ConfiguredModel(sizes.facts(name, source), bits)


@dataclass(frozen=True, slots=True)
class _Config:
    entries: Mapping[str, Any]
    name: str

    @property
    def kind(self) -> str:
        return str(self.entries.get("model_type", ""))

    def integer(self, key: str, default: int | None = None) -> int:
        """Raises: PlanError where it is no whole number, or absent without a default."""
        value = self.entries.get(key)
        if value is None and default is not None:
            return default
        if type(value) is not int or not 0 <= value <= _MAX_SIZE:
            raise self._unusable(key, value)
        return value

    def _unusable(self, key: str, value: object) -> PlanError:
        return PlanError(f"{self.name}: config.json has no usable {key!r} ({repr(value)[:60]})")

    def num_layers(self) -> int:
        return checked_layers(self.integer("num_hidden_layers"), self.name)

    def ffn_size(self, *, has_experts: bool) -> int:
        """Of layers without experts."""
        default = 0 if has_experts else None
        return self.first("intermediate_size_mlp") or self.integer("intermediate_size", default)

    def first(self, *keys: str) -> int:
        """Of the first of these entries that is there, else 0."""
        return next((self.integer(key) for key in keys if self.entries.get(key) is not None), 0)

    def flag(self, key: str, default: bool) -> bool:
        value = self.entries.get(key)
        if value is not None and not isinstance(value, bool):
            raise self._unusable(key, value)
        return default if value is None else value

    def head_dim(self) -> int:
        return self.integer(
            "head_dim", self.integer("hidden_size") // max(1, self.integer("num_attention_heads"))
        )

    def refuse_other_kinds(self) -> None:
        for key, kind in _NOT_COVERED.items():
            if self.entries.get(key):
                raise PlanError(f"{self.name} has {kind}, which is not covered")
        if "bert" in self.kind:
            raise PlanError(f"{self.name} is a {self.kind}, which writes no text")

    def windows(self) -> tuple[int | None, ...]:
        num_layers = self.num_layers()
        window = self.integer("sliding_window", 0) or self.integer("attention_chunk_size", 0)
        types = self.entries.get("layer_types")
        if isinstance(types, Sequence) and not isinstance(types, str):
            return self._by_type(types, window)
        if not window or not self.flag("use_sliding_window", not self.kind.startswith("qwen")):
            return (None,) * num_layers
        if self.kind.startswith("qwen"):
            first = self.integer("max_window_layers", 0)
            return tuple(window if i >= first else None for i in range(num_layers))
        period = self.integer("sliding_window_pattern", _PERIODS.get(self.kind, 0))
        if not period:
            return (window,) * num_layers
        return tuple(None if (i + 1) % period == 0 else window for i in range(num_layers))

    def _by_type(self, types: Sequence[Any], window: int) -> tuple[int | None, ...]:
        if len(types) != self.num_layers():
            raise PlanError(f"{self.name}: layer_types does not name each layer's type")
        unknown = [one for one in types if not isinstance(one, str) or one not in _LAYER_TYPES]
        if unknown:
            raise PlanError(
                f"{self.name} has layers of type {repr(unknown[0])[:60]}, which are not covered"
            )
        return tuple(window or None if _LAYER_TYPES[one] else None for one in types)

    def experts(self) -> dict[str, Any]:
        num_experts = self.first("num_experts", "num_local_experts", "n_routed_experts")
        if not num_experts:
            self._refuse_other_experts()
            return {}
        size = self.first("moe_intermediate_size", "intermediate_size")
        shared = self.integer("shared_expert_intermediate_size", 0)
        shared += size if self.kind.startswith("llama4") else 0
        return {
            "num_experts": num_experts,
            "num_used": self.first("num_experts_per_tok", "experts_per_token"),
            "expert_ffn_size": size,
            "shared_expert_size": shared + self.integer("n_shared_experts", 0) * size,
            "num_dense_layers": self._num_dense_layers(),
            "has_expert_bias": self.kind == "gpt_oss",
        }

    def _refuse_other_experts(self) -> None:
        """Entries that speak of experts in other words than those that are read here."""
        for key, value in self.entries.items():
            if ("expert" in key or key.startswith("moe_")) and type(value) is int and value > 1:
                raise PlanError(f"{self.name}: config.json has {key!r}, which is not understood")

    def _num_dense_layers(self) -> int:
        num_layers = self.num_layers()
        step = max(1, self.first("decoder_sparse_step", "interleave_moe_layer_step"))
        dense = self.entries.get("mlp_only_layers") or []
        if not isinstance(dense, list):
            raise self._unusable("mlp_only_layers", dense)
        first = self.integer("first_k_dense_replace", 0)
        sparse = [
            i for i in range(num_layers) if i >= first and (i + 1) % step == 0 and i not in dense
        ]
        return num_layers - len(sparse)

    def weight_bits(self, named: float | None) -> tuple[float, float | None]:
        """Of the layers, and of experts that alone are quantized."""
        quantization = self.entries.get("quantization_config")
        if not isinstance(quantization, Mapping):
            return named or 16.0, None
        method = str(quantization.get("quant_method", "quantized"))
        if method == "mxfp4":
            return named or 16.0, 4.25
        if named is not None:
            return named, None
        bits = quantization.get("bits", _BITS_OF.get(method))
        if type(bits) not in (int, float) or not 1 <= bits <= 16:
            raise PlanError(
                f"{self.name}: the bits of its {method[:40]!r} weights are not known; name"
                " --weight-bits"
            )
        return max(float(bits), _BITS_OF.get(method, 0.0) if bits == 4 else 0.0), None
