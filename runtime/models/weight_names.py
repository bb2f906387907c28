"""Names of tensors in GGUF and Hugging Face files, and the map of a decoder's weights they give.

Architectures take one of the two namings, change what differs, and call `map_weights`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from runtime.decoder_spec import DecoderSpec, ExpertSpec
from runtime.weight_map import (
    FeedForwardMap,
    LayerMap,
    Matrix,
    MatrixPart,
    Vector,
    VectorPart,
    WeightMap,
)


@dataclass(frozen=True, slots=True)
class LayerNames:
    """Names inside a layer, without `.weight` and `.bias`; several matrices are stacked. The names
    of the experts' matrices are whole: with a {} for the expert's number, or without it where one
    tensor holds all experts."""

    attention_norm: str
    qkv: tuple[str, ...]
    q_norm: str
    k_norm: str
    attention_output: str
    post_attention_norm: str
    ffn_norm: str
    gate_up: tuple[str, ...]
    down: str
    post_ffn_norm: str
    router: str
    expert_gate_up: tuple[str, ...]
    expert_down: str


@dataclass(frozen=True, slots=True)
class Naming:
    """How one kind of file names a decoder. `layer_prefix` has a {} for the layer's number.
    `interleaves_pairs`: the rotary pairs of q and k lie side by side. `norm_offset` is added to
    the norms' weights."""

    embedding: str
    final_norm: str
    output: str
    layer_prefix: str
    layer: LayerNames
    interleaves_pairs: bool = False
    norm_offset: float = 0.0

    def with_layer(self, **changes: Any) -> "Naming":
        """The naming with other names inside a layer."""
        return replace(self, layer=replace(self.layer, **changes))


GGUF_NAMING = Naming(
    embedding="token_embd",
    final_norm="output_norm",
    output="output",
    layer_prefix="blk.{}.",
    layer=LayerNames(
        attention_norm="attn_norm",
        qkv=("attn_q", "attn_k", "attn_v"),
        q_norm="attn_q_norm",
        k_norm="attn_k_norm",
        attention_output="attn_output",
        post_attention_norm="post_attention_norm",
        ffn_norm="ffn_norm",
        gate_up=("ffn_gate", "ffn_up"),
        down="ffn_down",
        post_ffn_norm="post_ffw_norm",
        router="ffn_gate_inp",
        expert_gate_up=("ffn_gate_exps.weight", "ffn_up_exps.weight"),
        expert_down="ffn_down_exps.weight",
    ),
)
HUGGING_FACE_NAMING = Naming(
    embedding="model.embed_tokens",
    final_norm="model.norm",
    output="lm_head",
    layer_prefix="model.layers.{}.",
    layer=LayerNames(
        attention_norm="input_layernorm",
        qkv=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        q_norm="self_attn.q_norm",
        k_norm="self_attn.k_norm",
        attention_output="self_attn.o_proj",
        post_attention_norm="post_attention_layernorm",
        ffn_norm="post_attention_layernorm",
        gate_up=("mlp.gate_proj", "mlp.up_proj"),
        down="mlp.down_proj",
        post_ffn_norm="post_feedforward_layernorm",
        router="mlp.gate",
        expert_gate_up=("mlp.experts.{}.gate_proj.weight", "mlp.experts.{}.up_proj.weight"),
        expert_down="mlp.experts.{}.down_proj.weight",
    ),
)


def map_weights(spec: DecoderSpec, naming: Naming, *, ignored: Iterable[str] = ()) -> WeightMap:
    """The map of a decoder whose files follow the naming. `ignored` are tensors that may be there
    besides the copy of a tied output matrix and rotary frequencies, which follow from the spec."""
    builder = _MapBuilder(spec, naming)
    width = spec.vocab_size, spec.hidden_size
    output = f"{naming.output}.weight"
    frequencies = (
        naming.layer_prefix.format(layer) + "self_attn.rotary_emb.inv_freq"
        for layer in range(spec.num_layers)
    )
    return WeightMap(
        embedding=builder.matrix(f"{naming.embedding}.weight", width),
        final_norm=builder.norm(naming.final_norm),
        output=None if spec.tied_embeddings else builder.matrix(output, width),
        layers=tuple(builder.layer(index) for index in range(spec.num_layers)),
        shapes=builder.shapes,
        ignored=frozenset(ignored)
        | frozenset(frequencies)
        | frozenset((output,) if spec.tied_embeddings else ()),
    )


@dataclass(eq=False)
class _MapBuilder:
    """Notes the shape of each tensor as it is mapped."""

    spec: DecoderSpec
    naming: Naming
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def matrix(self, name: str, shape: tuple[int, ...]) -> Matrix:
        self.shapes[name] = shape
        return (MatrixPart(name),)

    def norm(self, name: str, size: int | None = None) -> Vector:
        self.shapes[f"{name}.weight"] = (size or self.spec.hidden_size,)
        return (VectorPart(f"{name}.weight", offset=self.naming.norm_offset),)

    def layer(self, index: int) -> LayerMap:
        names, spec = self.naming.layer, self.spec
        prefix = self.naming.layer_prefix.format(index)
        output = prefix + names.attention_output
        has_experts = spec.layers[index].has_experts
        return LayerMap(
            attention_norm=self.norm(prefix + names.attention_norm),
            qkv=self._qkv(prefix),
            qkv_bias=self._qkv_bias(prefix) if spec.has_qkv_bias else None,
            q_norm=self._head_norm(prefix + names.q_norm),
            k_norm=self._head_norm(prefix + names.k_norm),
            attention_output=self.matrix(
                f"{output}.weight", (spec.hidden_size, spec.num_heads * spec.head_dim)
            ),
            attention_output_bias=(
                self._bias(f"{output}.bias") if spec.has_attention_output_bias else None
            ),
            post_attention_norm=self._post_norm(prefix + names.post_attention_norm),
            ffn_norm=self.norm(prefix + names.ffn_norm),
            router=self._router(prefix) if has_experts else None,
            ffns=self._experts(prefix) if has_experts else (self._dense_ffn(prefix),),
            post_ffn_norm=self._post_norm(prefix + names.post_ffn_norm),
        )

    def _qkv(self, prefix: str) -> Matrix:
        """One tensor, or one for each of q, k and v."""
        names, width = self.naming.layer.qkv, self.spec.hidden_size
        if len(names) == 1:
            name = f"{prefix}{names[0]}.weight"
            self.shapes[name] = (sum(self._qkv_rows()), width)
            return tuple(MatrixPart(name, rows=rows) for rows in self._fused_qkv_rows())
        parts = []
        for name, rows, interleaved in zip(
            names, self._qkv_rows(), self._interleaved(), strict=True
        ):
            self.shapes[f"{prefix}{name}.weight"] = (rows, width)
            parts.append(MatrixPart(f"{prefix}{name}.weight", interleaved_head_dim=interleaved))
        return tuple(parts)

    def _qkv_bias(self, prefix: str) -> Vector:
        parts = []
        for name, rows, interleaved in zip(
            self.naming.layer.qkv, self._qkv_rows(), self._interleaved(), strict=True
        ):
            self.shapes[f"{prefix}{name}.bias"] = (rows,)
            parts.append(VectorPart(f"{prefix}{name}.bias", interleaved_head_dim=interleaved))
        return tuple(parts)

    def _qkv_rows(self) -> tuple[int, int, int]:
        q_rows, kv_rows = (
            heads * self.spec.head_dim for heads in (self.spec.num_heads, self.spec.num_kv_heads)
        )
        return q_rows, kv_rows, kv_rows

    def _interleaved(self) -> tuple[int | None, int | None, None]:
        """Rotary pairs are those of q and k."""
        pairs = self.spec.head_dim if self.naming.interleaves_pairs else None
        return pairs, pairs, None

    def _fused_qkv_rows(self) -> tuple[tuple[int, int] | None, ...]:
        """All in the order of the file; but where only the first 2 r rows of a head turn, their
        pairs (i, i + r) move to (i, i + d / 2).

        | rows of a q or k head | in the file         | wanted              |
        | --------------------- | ------------------- | ------------------- |
        | first of the pairs    | [0, r)              | [0, r)              |
        | second of the pairs   | [r, 2 r)            | [d / 2, d / 2 + r)  |
        | the rest, first half  | [2 r, r + d / 2)    | [r, d / 2)          |
        | the rest, second half | [r + d / 2, d)      | [d / 2 + r, d)      |
        """
        spec, half = self.spec, self.spec.head_dim // 2
        frequencies = spec.layers[0].rotary.inverse_frequencies
        turning = sum(frequency != 0 for frequency in frequencies)
        if turning == half:
            return (None,)
        marks = (0, turning, 2 * turning, turning + half, 2 * half)
        rows = [
            (head * spec.head_dim + marks[part], head * spec.head_dim + marks[part + 1])
            for head in range(spec.num_heads + spec.num_kv_heads)
            for part in (0, 2, 1, 3)
        ]
        first_of_v = (spec.num_heads + spec.num_kv_heads) * spec.head_dim
        return (*rows, (first_of_v, first_of_v + spec.num_kv_heads * spec.head_dim))

    def _bias(self, name: str) -> Vector:
        self.shapes[name] = (self.spec.hidden_size,)
        return (VectorPart(name),)

    def _head_norm(self, name: str) -> Vector | None:
        return self.norm(name, self.spec.head_dim) if self.spec.has_qk_norm else None

    def _post_norm(self, name: str) -> Vector | None:
        return self.norm(name) if self.spec.has_post_norms else None

    def _dense_ffn(self, prefix: str) -> FeedForwardMap:
        names, spec = self.naming.layer, self.spec
        rows = 2 * spec.ffn_size // len(names.gate_up)
        return FeedForwardMap(
            gate_up=tuple(
                part
                for name in names.gate_up
                for part in self.matrix(f"{prefix}{name}.weight", (rows, spec.hidden_size))
            ),
            down=self.matrix(f"{prefix}{names.down}.weight", (spec.hidden_size, spec.ffn_size)),
        )

    def _router(self, prefix: str) -> Matrix:
        name = f"{prefix}{self.naming.layer.router}.weight"
        return self.matrix(name, (self._expert_spec().num_experts, self.spec.hidden_size))

    def _experts(self, prefix: str) -> tuple[FeedForwardMap, ...]:
        names, experts, width = self.naming.layer, self._expert_spec(), self.spec.hidden_size
        rows = 2 * experts.ffn_size // len(names.expert_gate_up)
        return tuple(
            FeedForwardMap(
                gate_up=tuple(
                    self._expert_part(prefix + name, expert, (rows, width))
                    for name in names.expert_gate_up
                ),
                down=(
                    self._expert_part(
                        prefix + names.expert_down, expert, (width, experts.ffn_size)
                    ),
                ),
            )
            for expert in range(experts.num_experts)
        )

    def _expert_part(self, name: str, expert: int, shape: tuple[int, int]) -> MatrixPart:
        if "{}" in name:
            self.shapes[name.format(expert)] = shape
            return MatrixPart(name.format(expert))
        self.shapes[name] = (self._expert_spec().num_experts, *shape)
        return MatrixPart(name, expert=expert)

    def _expert_spec(self) -> ExpertSpec:
        assert self.spec.experts is not None, "a layer has experts only where the spec has them"
        return self.spec.experts
