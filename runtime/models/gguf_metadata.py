"""Typed access to the metadata of a GGUF file, and what all architectures read from it.

Called by runtime/gguf_source.py and by the architectures. Errors name file, key and what was
expected.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass

import numpy as np

from runtime.errors import ModelError
from runtime.gguf_file import GgufFile, MetadataValue
from runtime.models.blueprint import Sizes

# Metadata (under the architecture's name) of variants that compute something else, and the values
# that are the plain model all the same.
_VARIANT_KEYS: Mapping[str, tuple[MetadataValue, ...]] = {
    "expert_count": (0,),
    "expert_used_count": (0,),
    "expert_shared_count": (0,),
    "leading_dense_block_count": (0,),
    "attention.sliding_window": (0,),
    "attention.scale": (0.0,),
    "attention.clamp_kqv": (0.0,),
    "attention.max_alibi_bias": (0.0,),
    "attention.causal": (True,),
    "use_parallel_residual": (False,),
    "logit_scale": (0.0, 1.0),
    "residual_scale": (0.0, 1.0),
    "embedding_scale": (0.0, 1.0),
    "final_logit_softcapping": (0.0,),
    "attn_logit_softcapping": (0.0,),
}


@dataclass(frozen=True, slots=True)
class GgufMetadata:
    """The metadata of one file. Keys are written whole; `own` adds the architecture's name."""

    file: GgufFile

    @property
    def architecture(self) -> str:
        return self.string("general.architecture")

    def own(self, suffix: str) -> str:
        return f"{self.architecture}.{suffix}"

    def get(self, key: str) -> MetadataValue | None:
        return self.file.metadata.get(key)

    def string(self, key: str, default: str | None = None) -> str:
        value = self.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise self._wrong(key, "a string")
        return value

    def integer(self, key: str, default: int | None = None) -> int:
        value = self.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, int):  # also a list: sizes that differ from layer to layer
            raise self._wrong(key, "one whole number")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, int | float):
            raise self._wrong(key, "a number")
        return float(value)

    def refuse_variants(self, *, handled: Container[str] = ()) -> None:
        """Raises: ModelError for the first entry that changes the computation and is not among
        those that the architecture handles."""
        for suffix, plain in _VARIANT_KEYS.items():
            value = self.get(self.own(suffix))
            if suffix not in handled and value is not None and value not in plain:
                raise ModelError(
                    f"{self.file.path}: {self.own(suffix)} = {value!r} is not supported"
                    f" (only the plain {self.architecture} architecture)"
                )

    def sizes(self) -> Sizes:
        hidden_size = self.integer(self.own("embedding_length"))
        num_heads = self.integer(self.own("attention.head_count"))
        head_dim = self.integer(self.own("attention.key_length"), hidden_size // max(num_heads, 1))
        self.expect_head_dim("attention.value_length", head_dim)
        return Sizes(
            hidden_size=hidden_size,
            num_layers=self.integer(self.own("block_count")),
            num_heads=num_heads,
            num_kv_heads=self.integer(self.own("attention.head_count_kv"), num_heads),
            head_dim=head_dim,
            ffn_size=self.integer(self.own("feed_forward_length")),
            vocab_size=self._vocab_size(),
            max_position=self.integer(self.own("context_length")),
            norm_eps=self.number(self.own("attention.layer_norm_rms_epsilon")),
            tied_embeddings="output.weight" not in self.file.tensors,
        ).check()

    def expect_head_dim(self, suffix: str, head_dim: int) -> None:
        """Raises: ModelError where the entry is there and is another number."""
        key = self.own(suffix)
        if self.integer(key, head_dim) != head_dim:
            raise ModelError(
                f"{self.file.path}: {key} = {self.get(key)} differs from the head size"
                f" {head_dim}, which is not supported"
            )

    def factors(self, tensor: str, *, length: int) -> tuple[float, ...] | None:
        """A tensor of float32 factors, None where the file has none."""
        info = self.file.tensors.get(tensor)
        if info is None:
            return None
        if info.shape != (length,) or info.type.name != "F32":
            raise ModelError(
                f"{self.file.path}: tensor {tensor!r} is {info.type.name} of shape {info.shape},"
                f" F32 of shape ({length},) is expected"
            )
        values = np.frombuffer(self.file.tensor_bytes(info), dtype="<f4")
        return tuple(float(value) for value in values)

    def _vocab_size(self) -> int:
        """The width of the logits: what the embedding has, which may exceed the token list."""
        embedding = self.file.tensors.get("token_embd.weight")
        if embedding is None or len(embedding.shape) != 2:
            raise ModelError(f"{self.file.path}: tensor 'token_embd.weight' is missing")
        return embedding.shape[0]

    def _wrong(self, key: str, expected: str) -> ModelError:
        found = self.get(key)
        found_text = "missing" if found is None else f"a {type(found).__name__}"
        return ModelError(
            f"{self.file.path}: the metadata entry {key!r} must be {expected}, it is {found_text}"
        )
