"""How many bytes keys and values take, for one token, one sequence and a load.

A token has a key and a value of `head_dim` numbers for each KV head of each layer (grouped-query
attention, arXiv:2305.13245): 2 * layers * KV heads * head size * bytes. Multi-head latent
attention (DeepSeek's MLA) keeps something else and is not covered.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from planning.errors import PlanError
from planning.model_facts import ModelFacts


@dataclass(frozen=True, slots=True)
class KvFormat:
    """`bits` of a number in the cache. `drops_windows`: pages that a layer's window has passed are
    given up; radixgate keeps them, as a later request may branch off anywhere."""

    bits: float = 16.0
    drops_windows: bool = False

    def check(self) -> "KvFormat":
        """Itself. Raises: PlanError."""
        if not 2 <= self.bits <= 32:
            raise PlanError(f"KV of {self.bits} bits is not possible")
        return self


def bytes_per_token(model: ModelFacts, kv: KvFormat) -> float:
    """Bytes that one more token takes while no window is full."""
    return model.num_layers * _layer_bytes(model, kv)


def sequence_bytes(model: ModelFacts, kv: KvFormat, num_tokens: float) -> float:
    """Bytes that a sequence of so many tokens keeps."""
    if not kv.drops_windows:
        return num_tokens * bytes_per_token(model, kv)
    return read_bytes(model, kv, num_tokens)


def read_bytes(model: ModelFacts, kv: KvFormat, num_tokens: float) -> float:
    """Bytes that the attention of one new token reads behind so many: a layer with a window reads
    no further back than that."""
    kinds = _kinds(model.windows)
    seen = sum(count * _seen(window, num_tokens) for window, count in kinds)
    return seen * _layer_bytes(model, kv)


def load_bytes(
    model: ModelFacts, kv: KvFormat, *, users: float, tokens_each: float, shared: float
) -> float:
    """Bytes of `users` sequences of `tokens_each`, of which the first `shared` are the same for
    all and kept once."""
    each = sequence_bytes(model, kv, tokens_each)
    common = sequence_bytes(model, kv, min(shared, tokens_each))
    return common + users * max(0.0, each - common) if users else 0.0


def attention_pairs(model: ModelFacts, *, new: float, cached: float) -> float:
    """How many (query, key) pairs all layers compute for `new` tokens behind `cached` ones; a
    token sees itself and all before it, or its window."""
    kinds = _kinds(model.windows)
    return sum(count * _pairs(window, new, cached) for window, count in kinds)


def device_share(model: ModelFacts, num_devices: int) -> float:
    """The share of a sequence's KV that one of so many devices keeps: whole KV heads, so more
    devices than heads keep copies."""
    return math.ceil(model.num_kv_heads / num_devices) / model.num_kv_heads


@cache
def _kinds(windows: tuple[int | None, ...]) -> Iterable[tuple[int | None, int]]:
    """Each window and how many layers have it: this is asked for thousands of times a plan."""
    return tuple(Counter(windows).items())


def _layer_bytes(model: ModelFacts, kv: KvFormat) -> float:
    return 2 * model.num_kv_heads * model.head_dim * kv.bits / 8


def _seen(window: int | None, num_tokens: float) -> float:
    return num_tokens if window is None else min(num_tokens, window)


def _pairs(window: int | None, new: float, cached: float) -> float:
    """The sum of min(position, window) over positions cached + 1 to cached + new."""
    last = cached + new
    full = new * (cached + last + 1) / 2
    if window is None or last <= window:
        return full
    before = max(0.0, min(new, window - cached))  # tokens whose window is not full
    return before * (2 * cached + before + 1) / 2 + (new - before) * window
