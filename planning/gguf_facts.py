"""Reads what the planner needs of a GGUF file's header: sizes, and the bytes of every tensor."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from planning.errors import PlanError
from planning.model_facts import ExpertFacts, ModelFacts, StoredBytes, checked_layers

_EMBEDDING, _OUTPUT = "token_embd.weight", "output.weight"
_EXPERT = re.compile(r"\.ffn_(gate|up|down|gate_up)(_exps|\.\d+)\.")
_NOT_COVERED = {
    "attention.kv_lora_rank": "multi-head latent attention (MLA)",
    "ssm.state_size": "state-space layers",
    "wkv.head_size": "linear attention",
}
# Of how many layers one sees all tokens, where the file does not say.
_PERIODS = {"gemma2": 2, "gemma3": 6, "gpt-oss": 2}
# What the native step keeps in 4 bits (runtime/native/blocks.py); all else in 8.
_FOUR_BITS = frozenset({"Q4_0", "Q4_1", "Q4_K"})
_PACKED_TOGETHER = (
    (re.compile(r"attn_[qkv]\."), "attn_qkv."),
    (re.compile(r"ffn_(gate|up)\."), "ffn_gate_up."),
)
_PACKED_BYTES = {4: 5 / 8, 8: 9 / 8}  # levels, and two halves for 32 weights


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor as the header lists it; `type_name` is ggml's."""

    name: str
    type_name: str
    shape: tuple[int, ...]
    num_bytes: int

    @property
    def num_params(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count


def model_of_gguf(
    metadata: Mapping[str, object], tensors: Iterable[StoredTensor], *, name: str, source: str
) -> ModelFacts:
    """Raises: PlanError for a header that lacks a size, or a kind of model that is not covered."""
    header, tensors = _Header(metadata, name), list(tensors)
    header.refuse_other_kinds()
    params = _by_part({one.name: float(one.num_params) for one in tensors})
    if not params[_EMBEDDING]:
        raise PlanError(f"{name}: the file has no tensor {_EMBEDDING!r}")
    num_layers = checked_layers(header.integer("block_count"), name)
    hidden = header.integer("embedding_length")
    num_heads = header.integer("attention.head_count")
    return ModelFacts(
        name=name,
        source=source,
        hidden_size=hidden,
        num_heads=num_heads,
        num_kv_heads=header.integer("attention.head_count_kv", num_heads),
        head_dim=header.integer("attention.key_length", hidden // max(1, num_heads)),
        vocab_size=round(params[_EMBEDDING]) // max(1, hidden),
        max_context=header.integer("context_length"),
        windows=header.windows(num_layers),
        dense_params=round(params["dense"]),
        embedding_params=round(params[_EMBEDDING]),
        output_params=round(params[_OUTPUT]),
        expert=header.experts(tensors, round(params["experts"])),
        stored=_stored({one.name: float(one.num_bytes) for one in tensors}, tensors),
        ffn_size=header.integer("feed_forward_length", 0)
        or header.integer("expert_feed_forward_length", 0),
    ).check()


def packed_bytes(tensors: Iterable[StoredTensor]) -> StoredBytes:
    """Bytes as this server's native step keeps the weights of such a file."""
    tensors = list(tensors)
    bits: dict[str, int] = {}
    for one in tensors:
        together = _packed_name(one.name)
        own = 4 if one.type_name in _FOUR_BITS else 8
        bits[together] = max(own, bits.get(together, 4))
    taken = {
        one.name: one.num_params * _PACKED_BYTES[bits[_packed_name(one.name)]]
        if len(one.shape) > 1
        else one.num_params * 4.0
        for one in tensors
    }
    return _stored(taken, tensors)


def _packed_name(name: str) -> str:
    for pattern, together in _PACKED_TOGETHER:
        name = pattern.sub(together, name)
    return name


def _by_part(amounts: Mapping[str, float]) -> dict[str, float]:
    parts = {_EMBEDDING: 0.0, _OUTPUT: 0.0, "experts": 0.0, "dense": 0.0}
    for name, amount in amounts.items():
        is_part = name in (_EMBEDDING, _OUTPUT)
        part = name if is_part else "experts" if _EXPERT.search(name) else "dense"
        parts[part] += amount
    return parts


def _stored(num_bytes: Mapping[str, float], tensors: list[StoredTensor]) -> StoredBytes:
    parts = _by_part(num_bytes)
    matrices = [one for one in tensors if len(one.shape) > 1 and one.name.startswith("blk.")]
    in_four = sum(one.num_params for one in matrices if one.type_name in _FOUR_BITS)
    is_four = 2 * in_four > sum(one.num_params for one in matrices)
    return StoredBytes(
        dense=parts["dense"],
        experts=parts["experts"],
        embedding=parts[_EMBEDDING],
        output=parts[_OUTPUT],
        bits=4 if is_four else 8,
    )


@dataclass(frozen=True, slots=True)
class _Header:
    metadata: Mapping[str, object]
    name: str

    @property
    def architecture(self) -> str:
        return str(self.metadata.get("general.architecture", ""))

    def own(self, suffix: str) -> object:
        return self.metadata.get(f"{self.architecture}.{suffix}")

    def integer(self, suffix: str, default: int | None = None) -> int:
        """Raises: PlanError where it is no whole number, or absent without a default."""
        value = self.own(suffix)
        if value is None and default is not None:
            return default
        if not isinstance(value, int) or value < 0:
            raise PlanError(
                f"{self.name}: {self.architecture}.{suffix} must be one whole number,"
                f" it is {'missing' if value is None else f'a {type(value).__name__}'}"
            )
        return value

    def refuse_other_kinds(self) -> None:
        for suffix, kind in _NOT_COVERED.items():
            if self.own(suffix):
                raise PlanError(f"{self.name} has {kind}, which is not covered")

    def windows(self, num_layers: int) -> tuple[int | None, ...]:
        window = self.integer("attention.sliding_window", 0)
        pattern = self.own("attention.sliding_window_pattern")
        if not window:
            return (None,) * num_layers
        if isinstance(pattern, list) and len(pattern) == num_layers:
            return tuple(window if has_window else None for has_window in pattern)
        period = pattern if isinstance(pattern, int) else _PERIODS.get(self.architecture, 0)
        if period < 1:
            return (window,) * num_layers
        return tuple(None if (i + 1) % period == 0 else window for i in range(num_layers))

    def experts(self, tensors: list[StoredTensor], params: int) -> ExpertFacts | None:
        num_experts = self.integer("expert_count", 0)
        if not num_experts or not params:
            return None
        layers = {one.name.split(".")[1] for one in tensors if _EXPERT.search(one.name)}
        return ExpertFacts(
            num_experts=num_experts,
            num_used=self.integer("expert_used_count"),
            params_each=params // (num_experts * len(layers)),
            num_layers=len(layers),
        )
