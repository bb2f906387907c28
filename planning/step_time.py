"""How long a decode step and the prefill of a prompt take: the roofline of each of their parts.

The matrices take the longer of reading their weights and computing; attention the longer of
reading keys and values and computing; both follow each other, so their times add up (Williams et
al., "Roofline", CACM 52/4, 2009; the FLOP counts are those of Kaplan et al., arXiv:2001.08361).
"""

import math
from dataclasses import dataclass

from planning.kv_cache import KvFormat, attention_pairs, read_bytes
from planning.machine import Machine
from planning.model_facts import ModelFacts
from planning.weights import WeightBytes

# Two all-reduces a layer, behind attention and feed-forward (Megatron-LM, arXiv:1909.08053, 3).
_ALL_REDUCES = 2
_ACTIVATION_BYTES = 2


@dataclass(frozen=True, slots=True)
class StepTime:
    """The parts of a step in seconds. Of each of the two pairs the longer one counts."""

    weights_s: float
    matmul_s: float
    kv_s: float
    attention_s: float
    communication_s: float
    overhead_s: float

    @property
    def total_s(self) -> float:
        return (
            max(self.weights_s, self.matmul_s)
            + max(self.kv_s, self.attention_s)
            + self.communication_s
            + self.overhead_s
        )

    @property
    def limit(self) -> str:
        """Which part takes longest: bandwidth, compute, communication or overhead."""
        parts = {"bandwidth": 0.0, "compute": 0.0}
        for reading, computing in ((self.weights_s, self.matmul_s), (self.kv_s, self.attention_s)):
            name = "bandwidth" if reading >= computing else "compute"
            parts[name] += max(reading, computing)
        parts |= {"communication": self.communication_s, "overhead": self.overhead_s}
        return max(parts, key=lambda name: parts[name])


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model as it is served: with the bytes of its weights, its KV and what it runs on."""

    facts: ModelFacts
    weights: WeightBytes
    kv: KvFormat
    machine: Machine

    def decode_step(self, *, rows: float, context: float) -> StepTime:
        """One new token for each of `rows` sequences with `context` tokens behind it."""
        machine, facts = self.machine, self.facts
        flops = 2 * rows * (facts.layer_params_per_token + facts.head_params)
        pairs = rows * attention_pairs(facts, new=1, cached=context)
        kv_bytes = rows * read_bytes(facts, self.kv, context)
        return StepTime(
            weights_s=self.weights.read(facts, num_tokens=rows) / machine.bandwidth,
            matmul_s=flops / machine.decode_flops,
            kv_s=kv_bytes / machine.kv_bandwidth,
            attention_s=self._attention_flops(pairs) / machine.attention_flops,
            communication_s=self._communication_s(rows, num_steps=1),
            overhead_s=machine.step_s + rows * machine.row_s,
        )

    def prefill(self, *, new: float, cached: float, chunk: int) -> StepTime:
        """`new` tokens behind `cached` ones, in chunks of at most `chunk`; logits of the last.
        Weights are read once a chunk."""
        machine, facts = self.machine, self.facts
        num_steps = max(1, math.ceil(new / chunk))
        flops = 2 * new * facts.layer_params_per_token + 2 * facts.head_params
        pairs = attention_pairs(facts, new=new, cached=cached)
        read = num_steps * self.weights.read(facts, num_tokens=new / num_steps)
        return StepTime(
            weights_s=read / machine.bandwidth,
            matmul_s=flops / machine.prefill_flops,
            kv_s=num_steps * read_bytes(facts, self.kv, cached + new / 2) / machine.kv_bandwidth,
            attention_s=self._attention_flops(pairs) / machine.attention_flops,
            communication_s=self._communication_s(new, num_steps=num_steps),
            overhead_s=num_steps * machine.step_s,
        )

    def _attention_flops(self, pairs: float) -> float:
        """Two products of `head_dim` a pair and head: scores, and the weighted sum of values."""
        return 4 * self.facts.num_heads * self.facts.head_dim * pairs

    def _communication_s(self, num_tokens: float, *, num_steps: int) -> float:
        """All-reduces in a ring: each device sends 2 (n - 1) / n of the activations."""
        machine, facts = self.machine, self.facts
        n = machine.num_devices
        if n == 1:
            return 0.0
        num_reduces = _ALL_REDUCES * facts.num_layers
        sent = num_tokens * facts.hidden_size * _ACTIVATION_BYTES * 2 * (n - 1) / n
        return num_reduces * (sent / machine.link + num_steps * machine.all_reduce_s)
