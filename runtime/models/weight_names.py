"""Names of tensors in GGUF and Hugging Face files, and the map of a decoder's weights they give.

Architectures take one of the two namings, change what differs, and call `map_weights`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from runtime.decoder_spec import DecoderSpec
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
    """Names inside a layer, without `.weight` and `.bias`. Several matrices are stacked."""

    attention_norm: str
    qkv: tuple[str, ...]
    attention_output: str
    ffn_norm: str
    gate_up: tuple[str, ...]
    down: str


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


GGUF_NAMING = Naming(
    embedding="token_embd",
    final_norm="output_norm",
    output="output",
    layer_prefix="blk.{}.",
    layer=LayerNames(
        attention_norm="attn_norm",
        qkv=("attn_q", "attn_k", "attn_v"),
        attention_output="attn_output",
        ffn_norm="ffn_norm",
        gate_up=("ffn_gate", "ffn_up"),
        down="ffn_down",
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
        attention_output="self_attn.o_proj",
        ffn_norm="post_attention_layernorm",
        gate_up=("mlp.gate_proj", "mlp.up_proj"),
        down="mlp.down_proj",
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
        embedding=(builder.part(f"{naming.embedding}.weight", width),),
        final_norm=builder.norm(naming.final_norm),
        output=None if spec.tied_embeddings else (builder.part(output, width),),
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

    def part(
        self, name: str, shape: tuple[int, ...], *, interleaved_head_dim: int | None = None
    ) -> MatrixPart:
        self.shapes[name] = shape
        return MatrixPart(name, interleaved_head_dim=interleaved_head_dim)

    def norm(self, name: str) -> Vector:
        self.shapes[f"{name}.weight"] = (self.spec.hidden_size,)
        return (VectorPart(f"{name}.weight", offset=self.naming.norm_offset),)

    def layer(self, index: int) -> LayerMap:
        names, spec = self.naming.layer, self.spec
        prefix = self.naming.layer_prefix.format(index)
        attention_size = spec.num_heads * spec.head_dim
        return LayerMap(
            attention_norm=self.norm(prefix + names.attention_norm),
            qkv=self._qkv(prefix),
            attention_output=(
                self.part(
                    f"{prefix}{names.attention_output}.weight", (spec.hidden_size, attention_size)
                ),
            ),
            ffn_norm=self.norm(prefix + names.ffn_norm),
            ffns=(self._dense_ffn(prefix),),
        )

    def _qkv(self, prefix: str) -> Matrix:
        """The matrices of q, k and v; q and k have rotary pairs."""
        spec, head_dim = self.spec, self.spec.head_dim
        heads = (spec.num_heads, spec.num_kv_heads, spec.num_kv_heads)
        interleaved = head_dim if self.naming.interleaves_pairs else None
        return tuple(
            self.part(
                f"{prefix}{name}.weight",
                (num_heads * head_dim, spec.hidden_size),
                interleaved_head_dim=pairs,
            )
            for name, num_heads, pairs in zip(
                self.naming.layer.qkv, heads, (interleaved, interleaved, None), strict=True
            )
        )

    def _dense_ffn(self, prefix: str) -> FeedForwardMap:
        names, spec = self.naming.layer, self.spec
        rows = 2 * spec.ffn_size // len(names.gate_up)
        return FeedForwardMap(
            gate_up=tuple(
                self.part(f"{prefix}{name}.weight", (rows, spec.hidden_size))
                for name in names.gate_up
            ),
            down=(self.part(f"{prefix}{names.down}.weight", (spec.hidden_size, spec.ffn_size)),),
        )
