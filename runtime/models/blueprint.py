"""What an architecture makes of a model's metadata: its computation and where its weights lie."""

from dataclasses import dataclass

from runtime.decoder_spec import DecoderSpec, LayerSpec
from runtime.weight_map import WeightMap

# Ten times what the largest published models have; without a bound a damaged file's number of
# layers fills the memory before the first tensor is missed.
MAX_LAYERS, MAX_HEADS, MAX_HEAD_DIM = 1500, 2048, 4096


@dataclass(frozen=True, slots=True)
class Blueprint:
    """All that is needed to run a model besides the weights themselves."""

    spec: DecoderSpec
    weight_map: WeightMap


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes that every kind of file names, before the architecture adds its features."""

    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn_size: int
    vocab_size: int
    max_position: int
    norm_eps: float
    tied_embeddings: bool

    def check(self) -> "Sizes":
        """The sizes themselves. Raises: ValueError where they contradict each other."""
        sizes = (self.hidden_size, self.num_layers, self.num_heads, self.num_kv_heads)
        if min(*sizes, self.head_dim, self.ffn_size, self.vocab_size, self.max_position) <= 0:
            raise ValueError(f"a size of the model is not positive ({self})")
        if (
            self.num_layers > MAX_LAYERS
            or self.num_heads > MAX_HEADS
            or self.head_dim > MAX_HEAD_DIM
        ):
            raise ValueError(
                f"{self.num_layers} layers with {self.num_heads} heads of {self.head_dim} cannot be"
                f" true (at most {MAX_LAYERS}, {MAX_HEADS} and {MAX_HEAD_DIM})"
            )
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"{self.num_heads} query heads cannot share {self.num_kv_heads} key-value heads"
            )
        if self.head_dim % 2:
            raise ValueError(f"rotary positions need an even head size, not {self.head_dim}")
        return self

    def plain_spec(self, layers: tuple[LayerSpec, ...]) -> DecoderSpec:
        """The decoder without any optional part, scores scaled by 1 / sqrt(d)."""
        return DecoderSpec(
            hidden_size=self.hidden_size,
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            ffn_size=self.ffn_size,
            vocab_size=self.vocab_size,
            max_position=self.max_position,
            norm_eps=self.norm_eps,
            attention_scale=self.head_dim**-0.5,
            tied_embeddings=self.tied_embeddings,
            layers=layers,
        )
