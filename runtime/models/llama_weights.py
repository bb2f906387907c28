"""Where the weights of a llama decoder lie in GGUF and Hugging Face files, and how to load them.

The one place that knows both naming schemes. Loading checks that every tensor is there, has the
right shape, and that none is left over: a bias or a norm that we would not compute is an error.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from runtime.errors import ModelError
from runtime.linear import Linear
from runtime.model_facts import ModelParameters
from runtime.weights import GgufWeights, WeightReader

EMBEDDING, FINAL_NORM, OUTPUT = "embedding", "final_norm", "output"

# Part of a layer -> (name in GGUF files, name in Hugging Face files).
_LAYER_NAMES: Mapping[str, tuple[str, str]] = {
    "attention_norm": ("attn_norm", "input_layernorm"),
    "q": ("attn_q", "self_attn.q_proj"),
    "k": ("attn_k", "self_attn.k_proj"),
    "v": ("attn_v", "self_attn.v_proj"),
    "attention_output": ("attn_output", "self_attn.o_proj"),
    "ffn_norm": ("ffn_norm", "post_attention_layernorm"),
    "gate": ("ffn_gate", "mlp.gate_proj"),
    "up": ("ffn_up", "mlp.up_proj"),
    "down": ("ffn_down", "mlp.down_proj"),
}
_TOP_NAMES: Mapping[str, tuple[str, str]] = {
    EMBEDDING: ("token_embd", "model.embed_tokens"),
    FINAL_NORM: ("output_norm", "model.norm"),
    OUTPUT: ("output", "lm_head"),
}
# Files of some writers carry the rotary frequencies, which follow from the parameters.
_DERIVED = re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer. `qkv` and `gate_up` are stacked, so that one matmul reads x once."""

    attention_norm: Tensor
    qkv: Linear
    attention_output: Linear
    ffn_norm: Tensor
    gate_up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class LlamaWeights:
    """All weights of a model on its device. Norms are float32."""

    embedding: Tensor
    layers: tuple[LayerWeights, ...]
    final_norm: Tensor
    output: Linear


def load_llama_weights(
    reader: WeightReader,
    parameters: ModelParameters,
    *,
    dtype: torch.dtype,
    device: torch.device,
) -> LlamaWeights:
    """Raises: ModelError naming the first tensor that is missing, left over or misshaped."""
    loader = _Loader(reader, parameters, dtype=dtype, device=device)
    loader.check()
    return loader.load()


class _Loader:
    def __init__(
        self,
        reader: WeightReader,
        parameters: ModelParameters,
        *,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._reader = reader
        self._p = parameters
        self._dtype = dtype
        self._device = device
        self._is_gguf = isinstance(reader, GgufWeights)

    def check(self) -> None:
        expected = dict(self._expected_shapes())
        found = self._reader.shapes
        for name, shape in expected.items():
            if name not in found:
                raise ModelError(f"tensor {name!r} is missing from the model's files")
            if found[name] != shape:
                raise ModelError(f"tensor {name!r} has shape {found[name]}, {shape} is expected")
        for name in found:
            if name not in expected and not self._is_ignored(name):
                raise ModelError(
                    f"tensor {name!r} is not part of a plain llama model; this variant is not"
                    " supported"
                )

    def load(self) -> LlamaWeights:
        embedding = self._matrix(EMBEDDING)
        return LlamaWeights(
            embedding=embedding,
            layers=tuple(self._layer(i) for i in range(self._p.num_layers)),
            final_norm=self._norm(FINAL_NORM),
            output=Linear(embedding if self._p.tied_embeddings else self._matrix(OUTPUT)),
        )

    def _layer(self, layer: int) -> LayerWeights:
        return LayerWeights(
            attention_norm=self._norm("attention_norm", layer),
            qkv=Linear(self._stacked(("q", "k", "v"), layer)),
            attention_output=Linear(self._matrix("attention_output", layer)),
            ffn_norm=self._norm("ffn_norm", layer),
            gate_up=Linear(self._stacked(("gate", "up"), layer)),
            down=Linear(self._matrix("down", layer)),
        )

    def _matrix(self, part: str, layer: int | None = None) -> Tensor:
        return self._read(part, layer).to(device=self._device, dtype=self._dtype, copy=True)

    def _norm(self, part: str, layer: int | None = None) -> Tensor:
        return self._read(part, layer).to(device=self._device, dtype=torch.float32, copy=True)

    def _stacked(self, parts: tuple[str, ...], layer: int) -> Tensor:
        num_rows = [self._shape(part)[0] for part in parts]
        stack = torch.empty(
            (sum(num_rows), self._p.hidden_size), dtype=self._dtype, device=self._device
        )
        for part, rows in zip(parts, torch.split(stack, num_rows), strict=True):
            rows.copy_(self._read(part, layer))
        return stack

    def _read(self, part: str, layer: int | None = None) -> Tensor:
        tensor = self._reader.read(self._name(part, layer))
        if self._is_gguf and part in ("q", "k"):
            return _undo_rotary_interleave(tensor, head_dim=self._p.head_dim)
        return tensor

    def _name(self, part: str, layer: int | None = None) -> str:
        if layer is None:
            return _TOP_NAMES[part][0 if self._is_gguf else 1] + ".weight"
        if self._is_gguf:
            return f"blk.{layer}.{_LAYER_NAMES[part][0]}.weight"
        return f"model.layers.{layer}.{_LAYER_NAMES[part][1]}.weight"

    def _expected_shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        for part in _TOP_NAMES:
            if part != OUTPUT or not self._p.tied_embeddings:
                yield self._name(part), self._shape(part)
        for layer in range(self._p.num_layers):
            for part in _LAYER_NAMES:
                yield self._name(part, layer), self._shape(part)

    def _shape(self, part: str) -> tuple[int, ...]:
        p = self._p
        q_size, kv_size = p.num_heads * p.head_dim, p.num_kv_heads * p.head_dim
        shapes: Mapping[str, tuple[int, ...]] = {
            EMBEDDING: (p.vocab_size, p.hidden_size),
            OUTPUT: (p.vocab_size, p.hidden_size),
            "q": (q_size, p.hidden_size),
            "k": (kv_size, p.hidden_size),
            "v": (kv_size, p.hidden_size),
            "attention_output": (p.hidden_size, q_size),
            "gate": (p.ffn_size, p.hidden_size),
            "up": (p.ffn_size, p.hidden_size),
            "down": (p.hidden_size, p.ffn_size),
        }
        return shapes.get(part, (p.hidden_size,))  # the norms

    def _is_ignored(self, name: str) -> bool:
        """A copy of the tied output matrix, and what follows from the parameters anyway."""
        is_tied_copy = self._p.tied_embeddings and name == self._name(OUTPUT)
        return is_tied_copy or _DERIVED.fullmatch(name) is not None


def _undo_rotary_interleave(weight: Tensor, *, head_dim: int) -> Tensor:
    """GGUF files hold the rows of q and k with the two halves of a head interleaved.

    | row of a head        | in the file | wanted        |
    | -------------------- | ----------- | ------------- |
    | pair i, first part   | 2 i         | i             |
    | pair i, second part  | 2 i + 1     | i + d / 2     |
    """
    num_rows, num_columns = weight.shape
    pairs = weight.view(num_rows // head_dim, head_dim // 2, 2, num_columns)
    return pairs.transpose(1, 2).reshape(num_rows, num_columns)
