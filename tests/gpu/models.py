"""Models for the checks on a GPU: the default one where its file is, and random weights in the
shapes of real ones, which need no file."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from runtime.decoder_spec import DecoderSpec, LayerSpec, RotarySpec
from runtime.decoder_weights import (
    DecoderWeights,
    FeedForwardWeights,
    LayerWeights,
    load_decoder_weights,
)
from runtime.linear import Linear
from runtime.model_source import open_model
from tests.model_file import default_model_path


@dataclass(frozen=True, slots=True)
class GpuModel:
    """`load` gives the weights anew in a number format on a device, always the same values."""

    name: str
    spec: DecoderSpec
    load: Callable[[torch.dtype, torch.device], DecoderWeights]


def make_spec(
    *, hidden: int, heads: int, kv_heads: int, head_dim: int, ffn: int, vocab: int, layers: int
) -> DecoderSpec:
    frequencies = tuple(10000.0 ** (-2 * i / head_dim) for i in range(head_dim // 2))
    return DecoderSpec(
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        ffn_size=ffn,
        vocab_size=vocab,
        max_position=32768,
        norm_eps=1e-5,
        attention_scale=head_dim**-0.5,
        tied_embeddings=True,
        layers=(LayerSpec(RotarySpec(frequencies)),) * layers,
    )


# The shapes of SmolLM2-135M and of Qwen2.5-1.5B (its biases left out).
SMALL = make_spec(hidden=576, heads=9, kv_heads=3, head_dim=64, ffn=1536, vocab=49152, layers=30)
MEDIUM = make_spec(
    hidden=1536, heads=12, kv_heads=2, head_dim=128, ffn=8960, vocab=151936, layers=28
)


def default_model() -> GpuModel:
    """The default model, or random weights of its shape where its file is not."""
    path = default_model_path()
    if not path.is_file():
        return random_model("random, 135M", SMALL)
    source = open_model(path)
    return GpuModel(
        "SmolLM2-135M",
        source.spec,
        lambda dtype, device: load_decoder_weights(source, dtype=dtype, device=device),
    )


def random_model(name: str, spec: DecoderSpec) -> GpuModel:
    return GpuModel(name, spec, lambda dtype, device: random_weights(spec, dtype, device))


def random_weights(spec: DecoderSpec, dtype: torch.dtype, device: torch.device) -> DecoderWeights:
    """Matrices that keep the size of what passes them; the output is tied to the embedding."""
    generator = torch.Generator().manual_seed(0)
    hidden, head_dim = spec.hidden_size, spec.head_dim

    def matrix(rows: int, columns: int) -> Linear:
        weight = torch.randn(rows, columns, generator=generator) * columns**-0.5
        return Linear(weight.to(device, dtype))

    def ones() -> torch.Tensor:
        return torch.ones(hidden, device=device)

    def layer() -> LayerWeights:
        return LayerWeights(
            attention_norm=ones(),
            qkv=matrix((spec.num_heads + 2 * spec.num_kv_heads) * head_dim, hidden),
            qkv_bias=None,
            q_norm=None,
            k_norm=None,
            attention_output=matrix(hidden, spec.num_heads * head_dim),
            attention_output_bias=None,
            post_attention_norm=None,
            ffn_norm=ones(),
            router=None,
            ffns=(
                FeedForwardWeights(
                    matrix(2 * spec.ffn_size, hidden), matrix(hidden, spec.ffn_size)
                ),
            ),
            post_ffn_norm=None,
        )

    output = matrix(spec.vocab_size, hidden)
    return DecoderWeights(
        embedding=output.weight,
        layers=tuple(layer() for _ in spec.layers),
        final_norm=ones(),
        output=output,
    )
