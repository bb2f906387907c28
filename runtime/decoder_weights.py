"""The torch weights of a decoder, read as its WeightMap says.

Loading checks that every tensor is there, has the right shape, and that none is left over: a bias
or a norm that we would not compute is an error.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from runtime.errors import ModelError
from runtime.int4_kernel import int4_kernel
from runtime.linear import Linear
from runtime.model_facts import ModelSource
from runtime.weight_map import (
    FeedForwardMap,
    LayerMap,
    Matrix,
    MatrixPart,
    Vector,
    WeightMap,
)
from runtime.weight_parts import read_part, read_vector
from runtime.weights import WeightReader, open_weights

_BLOCK_ELEMENTS = 1 << 24  # read at once: 64 MiB in float32


@dataclass(frozen=True, slots=True)
class FeedForwardWeights:
    """A gated feed-forward, or one expert. `gate_up` is stacked: one matmul reads x once."""

    gate_up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer; what the spec does not have is None. `qkv` is stacked; biases are in the
    dtype of the matrices, norms in float32. `ffns`: one, or with a router one an expert."""

    attention_norm: Tensor
    qkv: Linear
    qkv_bias: Tensor | None
    q_norm: Tensor | None
    k_norm: Tensor | None
    attention_output: Linear
    attention_output_bias: Tensor | None
    post_attention_norm: Tensor | None
    ffn_norm: Tensor
    router: Linear | None
    ffns: tuple[FeedForwardWeights, ...]
    post_ffn_norm: Tensor | None


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """All weights of a model on its device. A tied output shares the embedding's memory."""

    embedding: Tensor
    layers: tuple[LayerWeights, ...]
    final_norm: Tensor
    output: Linear


def load_decoder_weights(
    source: ModelSource, *, dtype: torch.dtype, device: torch.device
) -> DecoderWeights:
    """Raises: ModelError naming the first tensor that is missing, left over or misshaped."""
    reader = open_weights(source)
    check_tensors(reader.shapes, source.weight_map, architecture=source.architecture)
    return _Loader(reader, source.weight_map, dtype=dtype, device=device).load()


def check_tensors(
    found: Mapping[str, tuple[int, ...]], weight_map: WeightMap, *, architecture: str
) -> None:
    """Raises: ModelError naming the first tensor of the files that does not fit the map."""
    for name, shape in weight_map.shapes.items():
        if name not in found:
            raise ModelError(f"tensor {name!r} is missing from the model's files")
        if found[name] != shape:
            raise ModelError(f"tensor {name!r} has shape {found[name]}, {shape} is expected")
    for name in found:
        if name not in weight_map.shapes and name not in weight_map.ignored:
            raise ModelError(
                f"tensor {name!r} is not part of a plain {architecture} model; this variant is not"
                " supported"
            )


class _Loader:
    def __init__(
        self,
        reader: WeightReader,
        weight_map: WeightMap,
        *,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._reader = reader
        self._weight_map = weight_map
        self._dtype = dtype
        self._device = device

    def load(self) -> DecoderWeights:
        weights = self._weight_map
        embedding = self._matrix(weights.embedding)
        output = embedding if weights.output is None else self._matrix(weights.output)
        return DecoderWeights(
            embedding=embedding,
            layers=tuple(self._layer(layer) for layer in weights.layers),
            final_norm=self._vector(weights.final_norm),
            output=Linear(output),
        )

    def _layer(self, layer: LayerMap) -> LayerWeights:
        return LayerWeights(
            attention_norm=self._vector(layer.attention_norm),
            qkv=self._linear(layer.qkv),
            qkv_bias=self._bias(layer.qkv_bias),
            q_norm=self._optional_vector(layer.q_norm),
            k_norm=self._optional_vector(layer.k_norm),
            attention_output=self._linear(layer.attention_output),
            attention_output_bias=self._bias(layer.attention_output_bias),
            post_attention_norm=self._optional_vector(layer.post_attention_norm),
            ffn_norm=self._vector(layer.ffn_norm),
            router=None if layer.router is None else Linear(self._matrix(layer.router)),
            ffns=tuple(self._ffn(ffn) for ffn in layer.ffns),
            post_ffn_norm=self._optional_vector(layer.post_ffn_norm),
        )

    def _ffn(self, ffn: FeedForwardMap) -> FeedForwardWeights:
        return FeedForwardWeights(gate_up=self._linear(ffn.gate_up), down=self._linear(ffn.down))

    def _linear(self, parts: Matrix) -> Linear:
        """With a kernel for few rows where the file's weights are of 4 bits: on a CPU a step of few
        rows takes as long as reading the weights."""
        weight = self._matrix(parts)
        if self._dtype is not torch.bfloat16 or self._device.type != "cpu":
            return Linear(weight)
        return Linear(weight, few_rows=int4_kernel(self._reader, parts))

    def _matrix(self, parts: Matrix) -> Tensor:
        shapes = [self._part_shape(part) for part in parts]
        num_rows = sum(rows for rows, _ in shapes)
        stack = torch.empty((num_rows, shapes[0][1]), dtype=self._dtype, device=self._device)
        first_row = 0
        for part, shape in zip(parts, shapes, strict=True):
            for block in _blocks(part, *shape):
                read = read_part(self._reader, block)
                stack[first_row : first_row + read.shape[0]].copy_(read)
                first_row += read.shape[0]
        assert first_row == num_rows, "the blocks cover the matrix"
        return stack

    def _part_shape(self, part: MatrixPart) -> tuple[int, int]:
        num_rows, num_columns = self._weight_map.shapes[part.tensor][-2:]
        return num_rows if part.rows is None else part.rows[1] - part.rows[0], num_columns

    def _bias(self, parts: Vector | None) -> Tensor | None:
        return None if parts is None else self._vector(parts).to(self._dtype)

    def _optional_vector(self, parts: Vector | None) -> Tensor | None:
        return None if parts is None else self._vector(parts)

    def _vector(self, parts: Vector) -> Tensor:
        return read_vector(self._reader, parts).to(self._device)


def _blocks(part: MatrixPart, num_rows: int, num_columns: int) -> Iterator[MatrixPart]:
    """The part in blocks of rows, so that a large matrix is never whole in float32."""
    if part.expert is not None or part.interleaved_head_dim is not None:
        yield part
        return
    first = 0 if part.rows is None else part.rows[0]
    step = max(_BLOCK_ELEMENTS // num_columns, 1)
    for start in range(first, first + num_rows, step):
        yield replace(part, rows=(start, min(start + step, first + num_rows)))
