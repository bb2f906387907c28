"""What the planner must know of a model: sizes, and how many weights of which kind it has.

Made by planning/known_models.py, planning/model_config.py and planning/gguf_facts.py, or of
parameters. Counts are weights, not bytes.
"""

from dataclasses import dataclass, replace

from planning.errors import PlanError

# More than any model has; of each layer something is kept.
_MAX_LAYERS = 10_000


@dataclass(frozen=True, slots=True)
class ExpertFacts:
    """A mixture of experts: `num_used` of `num_experts` compute a token in each of `num_layers`.
    `params_each`: of one expert in one layer; `bits`: a weight's, where the model itself comes
    with quantized experts."""

    num_experts: int
    num_used: int
    params_each: int
    num_layers: int
    bits: float | None = None


@dataclass(frozen=True, slots=True)
class StoredBytes:
    """What a file says its weights take: `dense` all layers without experts, `experts` all
    experts, `embedding` the table (which is also the output where tied), `output` the output.
    `bits`: of most of the layers' weights, rounded up to 4, 8 or 16."""

    dense: float
    experts: float
    embedding: float
    output: float
    bits: int


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """`windows`: how many tokens each layer's attention reaches back, None = all of them.
    `dense_params`: of all layers, what every token passes (attention, dense feed-forward, norms,
    routers) and the final norm. `output_params` is 0 where the output is the embedding."""

    name: str
    source: str
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_context: int
    windows: tuple[int | None, ...]
    dense_params: int
    embedding_params: int
    output_params: int
    expert: ExpertFacts | None = None
    stored: StoredBytes | None = None
    ffn_size: int = 0

    @property
    def num_layers(self) -> int:
        return len(self.windows)

    @property
    def expert_params(self) -> int:
        """Of all experts in all layers."""
        expert = self.expert
        return expert.num_experts * expert.params_each * expert.num_layers if expert else 0

    @property
    def total_params(self) -> int:
        return self.dense_params + self.expert_params + self.embedding_params + self.output_params

    @property
    def active_params(self) -> int:
        """Weights that a token is multiplied with; the embedding is looked up, the output is
        counted (it is computed for tokens that are sampled)."""
        return self.layer_params_per_token + self.head_params

    @property
    def layer_params_per_token(self) -> int:
        """Weights of the layers that a token is multiplied with, so 2 FLOP each."""
        expert = self.expert
        used = expert.num_used * expert.params_each * expert.num_layers if expert else 0
        return self.dense_params + used

    @property
    def head_params(self) -> int:
        """Of the output matrix, which is read for every sampled token."""
        return self.output_params or self.embedding_params

    def check(self) -> "ModelFacts":
        """Itself. Raises: PlanError for sizes that contradict each other."""
        sizes = (
            ("hidden size", self.hidden_size),
            ("number of heads", self.num_heads),
            ("number of KV heads", self.num_kv_heads),
            ("head size", self.head_dim),
            ("vocabulary", self.vocab_size),
            ("context", self.max_context),
        )
        for name, size in sizes:
            if size < 1:
                raise PlanError(f"{self.name}: the {name} must be at least 1, it is {size}")
        if self.num_heads % self.num_kv_heads:
            raise PlanError(
                f"{self.name}: {self.num_heads} heads cannot share {self.num_kv_heads} KV heads"
            )
        if self.dense_params < 1:
            raise PlanError(
                f"{self.name}: the embedding of {self.vocab_size} x {self.hidden_size} leaves no"
                " weights for the layers; name more --params"
            )
        if any(window is not None and window < 1 for window in self.windows):
            raise PlanError(f"{self.name}: a layer's window must be at least 1 token")
        expert = self.expert
        if expert is not None and not 0 < expert.num_used <= expert.num_experts:
            raise PlanError(
                f"{self.name}: {expert.num_used} of {expert.num_experts} experts cannot be used"
            )
        return self


def checked_layers(num_layers: int, name: str) -> int:
    """Itself. Raises: PlanError."""
    if not 1 <= num_layers <= _MAX_LAYERS:
        raise PlanError(
            f"{name}: the number of layers must be from 1 to {_MAX_LAYERS:,}, it is {num_layers:,}"
        )
    return num_layers


@dataclass(frozen=True, slots=True)
class DecoderSizes:
    """The sizes of a decoder as configuration files have them, from which weights are counted:
    grouped-query attention and a feed-forward (up and down, and a gate unless `has_gate` is
    false) in each layer.

    `expert_ffn_size` is of one expert, `shared_expert_size` of a feed-forward beside the experts;
    `num_dense_layers`: layers at the start that have a feed-forward of `ffn_size` instead.
    `biases`: their number in one layer. `expert_biases`: in one expert.
    """

    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn_size: int
    vocab_size: int
    max_context: int
    tied_embeddings: bool = False
    has_gate: bool = True
    has_qkv_bias: bool = False
    has_output_bias: bool = False
    has_qk_norm: bool = False
    has_post_norms: bool = False
    has_sinks: bool = False
    num_experts: int = 0
    num_used: int = 0
    expert_ffn_size: int = 0
    shared_expert_size: int = 0
    num_dense_layers: int = 0
    has_expert_bias: bool = False
    expert_bits: float | None = None
    windows: tuple[int | None, ...] = ()

    def facts(self, name: str, source: str) -> ModelFacts:
        """Raises: PlanError for sizes that contradict each other."""
        num_moe = self.num_layers - self.num_dense_layers if self.num_experts else 0
        dense = self.num_layers * self._attention_params() + self.hidden_size
        num_matrices = 3 if self.has_gate else 2
        dense += (self.num_layers - num_moe) * num_matrices * self.hidden_size * self.ffn_size
        dense += num_moe * self._router_params()
        table = self.vocab_size * self.hidden_size
        return ModelFacts(
            name=name,
            source=source,
            hidden_size=self.hidden_size,
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            vocab_size=self.vocab_size,
            max_context=self.max_context,
            windows=self.windows or (None,) * self.num_layers,
            dense_params=dense,
            embedding_params=table,
            output_params=0 if self.tied_embeddings else table,
            expert=self._expert(num_moe),
            ffn_size=self.ffn_size or self.num_used * self.expert_ffn_size,
        ).check()

    def _attention_params(self) -> int:
        """Of one layer, with its norms and biases."""
        heads = self.num_heads + 2 * self.num_kv_heads
        params = self.hidden_size * self.head_dim * (heads + self.num_heads)
        params += self.hidden_size * (4 if self.has_post_norms else 2)
        params += heads * self.head_dim if self.has_qkv_bias else 0
        params += self.hidden_size if self.has_output_bias else 0
        params += 2 * self.head_dim if self.has_qk_norm else 0
        return params + (self.num_heads if self.has_sinks else 0)

    def _router_params(self) -> int:
        """Of one layer with experts: router and what stands beside the experts."""
        params = (
            self.hidden_size * self.num_experts + 3 * self.hidden_size * self.shared_expert_size
        )
        return params + (self.num_experts if self.has_expert_bias else 0)

    def _expert(self, num_moe: int) -> ExpertFacts | None:
        if not num_moe:
            return None
        each = 3 * self.hidden_size * self.expert_ffn_size
        if self.has_expert_bias:
            each += 2 * self.expert_ffn_size + self.hidden_size
        return ExpertFacts(self.num_experts, self.num_used, each, num_moe, self.expert_bits)


def with_total_params(sizes: DecoderSizes, total: int, *, name: str) -> ModelFacts:
    """Of a model whose number of weights is known and whose feed-forward is not: the layers have
    what the embedding leaves. Raises: PlanError."""
    facts = replace(sizes, ffn_size=max(1, sizes.ffn_size)).facts(name, "parameters")
    rest = total - facts.expert_params - facts.embedding_params - facts.output_params
    return replace(
        facts, dense_params=rest, ffn_size=sizes.ffn_size or 4 * sizes.hidden_size
    ).check()
