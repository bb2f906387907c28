"""How many bytes a model's weights take, and how many of them a step reads."""

from dataclasses import dataclass

from planning.errors import PlanError
from planning.model_facts import ModelFacts, StoredBytes

# Of this server's native step: 4 or 8 bits, and two halves for 32 weights.
PACKED_BITS = {4: 5.0, 8: 9.0}


@dataclass(frozen=True, slots=True)
class WeightBytes:
    """Bytes of all layers without experts, of one expert in one layer, of the embedding and of
    the output (0 where it is the embedding)."""

    dense: float
    expert_each: float
    embedding: float
    output: float

    def total(self, model: ModelFacts) -> float:
        """Bytes that must fit into memory."""
        return self.dense + self.embedding + self.output + self._experts(model)

    def _experts(self, model: ModelFacts) -> float:
        expert = model.expert
        return self.expert_each * expert.num_experts * expert.num_layers if expert else 0.0

    def read(self, model: ModelFacts, *, num_tokens: float) -> float:
        """Bytes that a step over so many tokens reads: all but the embedding, of which single rows
        are taken, and of the experts those that a token chose."""
        head = self.output or self.embedding
        expert = model.expert
        if expert is None:
            return self.dense + head
        touched = experts_touched(expert.num_experts, expert.num_used, num_tokens)
        return self.dense + head + self.expert_each * expert.num_layers * touched


def check_bits(bits: float | None) -> None:
    """None = as a file has them. Raises: PlanError."""
    if bits is not None and not 1 <= bits <= 32:
        raise PlanError(f"weights of {bits:g} bits are not possible")


def experts_touched(num_experts: int, num_used: int, num_tokens: float) -> float:
    """How many different experts of a layer are expected to be used, if each token chooses its
    `num_used` evenly and independently: E * (1 - (1 - k / E) ** n)."""
    return float(num_experts * (1.0 - (1.0 - num_used / num_experts) ** num_tokens))


def weight_bytes(model: ModelFacts, bits: float, *, table_bits: float = 16.0) -> WeightBytes:
    """Of weights in so many bits, scales included. Embedding and output have `table_bits`: they
    stay in 16 in published FP8, AWQ and GPTQ models. Experts that come quantized keep their bits
    where that is less."""
    table_bits = max(bits, table_bits)
    expert = model.expert
    expert_bits = bits if expert is None or expert.bits is None else min(bits, expert.bits)
    return WeightBytes(
        dense=model.dense_params * bits / 8,
        expert_each=expert.params_each * expert_bits / 8 if expert else 0.0,
        embedding=model.embedding_params * table_bits / 8,
        output=model.output_params * table_bits / 8,
    )


def stored_weight_bytes(model: ModelFacts, stored: StoredBytes) -> WeightBytes:
    """As a file has them."""
    expert = model.expert
    num_experts = expert.num_experts * expert.num_layers if expert else 1
    return WeightBytes(
        dense=stored.dense,
        expert_each=stored.experts / num_experts,
        embedding=stored.embedding,
        output=stored.output,
    )
