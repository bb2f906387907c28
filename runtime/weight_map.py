"""Where each weight of a decoder lies in a model's files, as data.

Made by the architecture (runtime/models/); read by the loader of the torch weights
(runtime/decoder_weights.py) and by the packer of the native ones (runtime/native/). No torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MatrixPart:
    """Rows of one tensor in the files. `rows` None = all, in the order of the file; else
    [start, stop) of them. `interleaved_head_dim`: the rows of each head of this size are stored
    as pairs (2 i, 2 i + 1) and belong at (i, i + d / 2). `expert`: index into a first dimension
    that stacks the experts."""

    tensor: str
    rows: tuple[int, int] | None = None
    interleaved_head_dim: int | None = None
    expert: int | None = None


@dataclass(frozen=True, slots=True)
class VectorPart:
    """A vector; `offset` is added to each element (1 where a file stores a norm's w - 1)."""

    tensor: str
    rows: tuple[int, int] | None = None
    interleaved_head_dim: int | None = None
    offset: float = 0.0


Matrix = tuple[MatrixPart, ...]  # stacked along the rows
Vector = tuple[VectorPart, ...]


@dataclass(frozen=True, slots=True)
class FeedForwardMap:
    """gate_up: gate's rows, then up's, [2 * ffn_size, hidden]; down: [hidden, ffn_size]."""

    gate_up: Matrix
    down: Matrix


@dataclass(frozen=True, slots=True)
class LayerMap:
    """One layer. qkv: q's rows, then k's, then v's, [(H + 2 G) * d, hidden]. What the spec says
    the layer does not have is None or empty. A dense layer has one feed-forward, a layer with
    experts a router and one for each expert."""

    attention_norm: Vector
    qkv: Matrix
    attention_output: Matrix
    ffn_norm: Vector
    ffns: tuple[FeedForwardMap, ...]
    qkv_bias: Vector | None = None
    attention_output_bias: Vector | None = None
    q_norm: Vector | None = None
    k_norm: Vector | None = None
    post_attention_norm: Vector | None = None
    post_ffn_norm: Vector | None = None
    router: Matrix | None = None


@dataclass(frozen=True, slots=True)
class WeightMap:
    """All of a model. output None = the embedding is the output layer too.

    `shapes`: every tensor that must be in the files, with its shape; `ignored`: tensors that may
    be there and are not needed (copies of a tied matrix, what follows from the spec anyway).
    """

    embedding: Matrix
    final_norm: Vector
    output: Matrix | None
    layers: tuple[LayerMap, ...]
    shapes: Mapping[str, tuple[int, ...]]
    ignored: frozenset[str] = frozenset()
