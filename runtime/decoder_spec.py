"""What a decoder computes, as data: sizes, constants and which parts each layer has.

Every supported architecture is an instance of it (runtime/models/); the reference forward
(runtime/decoder.py) and the native step (runtime/native/) both read it and know no architecture
by name. No torch.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

Activation = Literal["silu", "gelu_tanh"]

# Many times what published models have: a damaged file's number must not fill the memory.
MAX_EXPERTS = 4096


@dataclass(frozen=True, slots=True)
class RotarySpec:
    """Rotary positions of the pairs (i, i + d / 2) of a head.

    `inverse_frequencies`: one a pair, radians a position; whatever scaling the model has (linear,
    llama3, yarn, longrope) is in them. `magnitude` multiplies cos and sin. A pair of frequency 0
    passes as it is, also without the magnitude: models that turn a part of each head have them.
    """

    inverse_frequencies: tuple[float, ...]
    magnitude: float = 1.0

    @property
    def magnitudes(self) -> tuple[float, ...]:
        """What multiplies cos and sin, one a pair."""
        return tuple(self.magnitude if f else 1.0 for f in self.inverse_frequencies)

    def check(self) -> None:
        """Raises: ValueError where a file's scaling or factors made no sense."""
        turning = [frequency for frequency in self.inverse_frequencies if frequency != 0]
        if not all(map(_is_positive, (self.magnitude, *turning))):
            raise ValueError("the rotary positions turn by what is no positive number")


@dataclass(frozen=True, slots=True)
class LongContext:
    """Another rotation for all layers of a runtime whose sequences may exceed `above` tokens."""

    above: int
    rotary: RotarySpec


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """One layer. `window`: how many tokens a token sees, itself included; None = all before it.
    `has_experts`: a router and experts in place of the dense feed-forward."""

    rotary: RotarySpec
    window: int | None = None
    has_experts: bool = False


@dataclass(frozen=True, slots=True)
class ExpertSpec:
    """Mixture of experts: the router's softmax over `num_experts`, of which the best `num_used`
    run; `normalize` divides their weights by their sum."""

    num_experts: int
    num_used: int
    ffn_size: int
    normalize: bool

    def check(self) -> "ExpertSpec":
        """The spec itself. Raises: ValueError for numbers that contradict each other."""
        if not 0 < self.num_used <= self.num_experts <= MAX_EXPERTS or self.ffn_size < 1:
            raise ValueError(f"the experts' numbers contradict each other ({self})")
        return self


@dataclass(frozen=True, slots=True)
class DecoderSpec:
    """A decoder-only transformer with RMS norms, grouped-query attention and a gated feed-forward.

        x = embedding[token] * embedding_scale
        for each layer:
            x += post_norm(attention(norm(x)))      (post norms only if `has_post_norms`)
            x += post_norm(ffn(norm(x)))            ffn(x) = down(activation(gate(x)) * up(x))
        logits = softcap(output(norm(x)))           softcap(x) = c * tanh(x / c)

    `has_qkv_bias` adds a bias to q, k and v, `has_attention_output_bias` one to what attention's
    output matrix gives; `has_qk_norm` norms each head of q and k before the
    rotation; scores are `attention_scale` * q k, through a softcap where `attention_softcap` is
    set. Norm weights multiply (models that store w - 1 are changed when loaded).
    Lengths in tokens.
    """

    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn_size: int
    vocab_size: int
    max_position: int
    norm_eps: float
    attention_scale: float
    tied_embeddings: bool
    layers: tuple[LayerSpec, ...]
    activation: Activation = "silu"
    embedding_scale: float = 1.0
    has_qkv_bias: bool = False
    has_attention_output_bias: bool = False
    has_qk_norm: bool = False
    has_post_norms: bool = False
    attention_softcap: float | None = None
    logit_softcap: float | None = None
    experts: ExpertSpec | None = None
    long_context: LongContext | None = None

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    def check(self) -> None:
        """Raises: ValueError for a number with which nothing can be computed."""
        for name in ("norm_eps", "attention_scale", "attention_softcap", "logit_softcap"):
            value = getattr(self, name)
            if value is not None and not _is_positive(value):
                raise ValueError(f"the model's {name} must be a positive number, it is {value!r}")
        for window in {layer.window for layer in self.layers} - {None}:
            if not _is_positive(window):
                raise ValueError(f"a layer's window must be at least 1, it is {window}")
        for rotary in {layer.rotary for layer in self.layers}:
            rotary.check()
        if self.long_context is not None:
            self.long_context.rotary.check()

    def for_context(self, max_model_len: int) -> "DecoderSpec":
        """The spec of a runtime with sequences of at most this length. It is chosen once, not for
        each sequence, as a page of the cache must fit every sequence."""
        long = self.long_context
        if long is None:
            return self
        if max_model_len <= long.above:
            return replace(self, long_context=None)
        layers = tuple(replace(layer, rotary=long.rotary) for layer in self.layers)
        return replace(self, layers=layers, long_context=None)


def _is_positive(value: object) -> bool:
    """Also not infinite, and no complex number: a root or power of a negative one is."""
    return isinstance(value, int | float) and 0 < value < math.inf
