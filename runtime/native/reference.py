"""The native step's arithmetic in plain torch: what it is compared with.

The same packed weights and the same quantized activations, in float32: where the two differ by
more than rounding, one of them is wrong.
"""

import torch
from torch import Tensor

from runtime.decoder_spec import DecoderSpec
from runtime.decoder_weights import DecoderWeights, FeedForwardWeights, LayerWeights
from runtime.linear import Kernel, Linear
from runtime.native.blocks import BLOCK_LEN, Blocks, pad_columns
from runtime.native.packed_weights import PackedMatrix, PackedWeights, unpack, unpack_gate_up

_MAX_LEVEL = 127


class BlockLinear(Linear):
    """A matrix of blocks times activations that are quantized to 8 bits, a scale for each 32."""

    def __init__(self, blocks: Blocks, *, num_inputs: int) -> None:
        super().__init__(blocks.to_floats()[:, :num_inputs])

    def kernel_for(self, num_rows: int) -> Kernel:
        dense = super().kernel_for(num_rows)
        return lambda x: dense(round_activations(x))


def round_activations(x: Tensor) -> Tensor:
    """x: [M, K] -> what is left of it in 8 bits: the nearest of 255 steps in each block of 32."""
    blocks = pad_columns(x.float()).view(x.shape[0], -1, BLOCK_LEN)
    greatest = blocks.abs().amax(-1, keepdim=True)
    inverse = torch.where(greatest > 0, _MAX_LEVEL / greatest, torch.zeros_like(greatest))
    rounded = (blocks * inverse).round() * (greatest / _MAX_LEVEL)
    return rounded.flatten(1)[:, : x.shape[1]]


def reference_weights(packed: PackedWeights, spec: DecoderSpec) -> DecoderWeights:
    """What runtime/decoder.py needs to compute as the native step does."""
    embedding = unpack(packed.matrices["embedding"]).to_floats()
    embedding = embedding[: spec.vocab_size, : spec.hidden_size]
    output = packed.matrices.get("output", packed.matrices["embedding"])
    return DecoderWeights(
        embedding=embedding,
        layers=tuple(_layer(packed, spec, index) for index in range(spec.num_layers)),
        final_norm=packed.arrays["final_norm"],
        output=_linear(output, spec.vocab_size, spec.hidden_size),
    )


def _layer(packed: PackedWeights, spec: DecoderSpec, index: int) -> LayerWeights:
    def array(name: str) -> Tensor | None:
        return packed.arrays.get(f"{index}.{name}")

    def matrix(name: str) -> PackedMatrix:
        return packed.matrices[f"{index}.{name}"]

    router = array("router")
    num_heads = spec.num_heads + 2 * spec.num_kv_heads
    heads_size = spec.num_heads * spec.head_dim
    return LayerWeights(
        attention_norm=packed.arrays[f"{index}.attention_norm"],
        qkv=_linear(matrix("qkv"), num_heads * spec.head_dim, spec.hidden_size),
        qkv_bias=array("qkv_bias"),
        q_norm=array("q_norm"),
        k_norm=array("k_norm"),
        attention_output=_linear(matrix("attention_output"), spec.hidden_size, heads_size),
        attention_output_bias=array("attention_output_bias"),
        post_attention_norm=array("post_attention_norm"),
        ffn_norm=packed.arrays[f"{index}.ffn_norm"],
        router=None if router is None else Linear(router),
        ffns=_feed_forwards(packed, spec, index),
        post_ffn_norm=array("post_ffn_norm"),
    )


def _feed_forwards(
    packed: PackedWeights, spec: DecoderSpec, index: int
) -> tuple[FeedForwardWeights, ...]:
    size, count = spec.ffn_size, 1
    if spec.layers[index].has_experts and spec.experts is not None:
        size, count = spec.experts.ffn_size, spec.experts.num_experts
    prefixes = [f"{index}.ffns.{number}" for number in range(count)]
    return tuple(
        FeedForwardWeights(
            gate_up=BlockLinear(
                unpack_gate_up(packed.matrices[f"{prefix}.gate_up"], size),
                num_inputs=spec.hidden_size,
            ),
            down=_linear(packed.matrices[f"{prefix}.down"], spec.hidden_size, size),
        )
        for prefix in prefixes
    )


def _linear(matrix: PackedMatrix, num_outputs: int, num_inputs: int) -> BlockLinear:
    blocks = unpack(matrix)
    return BlockLinear(blocks.rows(torch.arange(num_outputs)), num_inputs=num_inputs)
