"""What a GGUF file says about its model: parameters and text assets. Called by open_model."""

from dataclasses import dataclass
from pathlib import Path

from runtime.errors import ModelError
from runtime.gguf_file import GgufFile, MetadataValue
from runtime.gguf_vocabulary import build_tokenizer_json, control_tokens, string_list
from runtime.model_facts import (
    END_OF_TURN_TOKENS,
    ModelParameters,
    ModelSource,
    check_parameters,
)
from runtime.text_assets import TextAssets

# Metadata (under `llama.`) of variants that compute something else, and the values that are
# the plain model all the same.
_VARIANT_KEYS: dict[str, tuple[MetadataValue, ...]] = {
    "rope.scaling.type": ("none",),
    "rope.scaling.factor": (0.0, 1.0),
    "rope.scale_linear": (0.0, 1.0),
    "expert_count": (0,),
    "expert_used_count": (0,),
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
_SPECIAL_TOKEN_KEYS = {
    "bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding",
}  # fmt: skip


def open_gguf(path: Path) -> ModelSource:
    """Raises: ModelError, one line."""
    file = GgufFile.open(path)
    metadata = _Metadata(file)
    architecture = metadata.string("general.architecture")
    if architecture != "llama":
        raise ModelError(f"{path}: the architecture {architecture!r} is not supported (only llama)")
    _refuse_variants(metadata)
    parameters = check_parameters(_read_parameters(metadata), path)
    try:
        text = _read_text(metadata, parameters)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None
    return ModelSource(
        path=path,
        architecture=architecture,
        parameters=parameters,
        text=text,
        weights=file,
        identity_files=(path,),
    )


@dataclass(frozen=True, slots=True)
class _Metadata:
    """Typed access to the metadata of one file; errors name file, key and what was expected."""

    file: GgufFile

    def get(self, key: str) -> MetadataValue | None:
        return self.file.metadata.get(key)

    def string(self, key: str) -> str:
        value = self.get(key)
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

    def _wrong(self, key: str, expected: str) -> ModelError:
        found = self.get(key)
        found_text = "missing" if found is None else f"a {type(found).__name__}"
        return ModelError(
            f"{self.file.path}: the metadata entry {key!r} must be {expected}, it is {found_text}"
        )


def _refuse_variants(metadata: _Metadata) -> None:
    for suffix, plain in _VARIANT_KEYS.items():
        value = metadata.get(f"llama.{suffix}")
        if value is not None and value not in plain:
            raise ModelError(
                f"{metadata.file.path}: llama.{suffix} = {value!r} is not supported"
                " (only the plain llama architecture)"
            )
    if "rope_freqs.weight" in metadata.file.tensors:
        raise ModelError(
            f"{metadata.file.path}: rope scaling (tensor 'rope_freqs.weight') is not supported"
        )


def _read_parameters(metadata: _Metadata) -> ModelParameters:
    hidden_size = metadata.integer("llama.embedding_length")
    num_heads = metadata.integer("llama.attention.head_count")
    head_dim = metadata.integer("llama.attention.key_length", hidden_size // max(num_heads, 1))
    for key in ("llama.attention.value_length", "llama.rope.dimension_count"):
        if metadata.integer(key, head_dim) != head_dim:
            raise ModelError(
                f"{metadata.file.path}: {key} = {metadata.get(key)} differs from the head size"
                f" {head_dim}, which is not supported"
            )
    return ModelParameters(
        hidden_size=hidden_size,
        num_layers=metadata.integer("llama.block_count"),
        num_heads=num_heads,
        num_kv_heads=metadata.integer("llama.attention.head_count_kv", num_heads),
        head_dim=head_dim,
        ffn_size=metadata.integer("llama.feed_forward_length"),
        vocab_size=_vocab_size(metadata),
        max_position=metadata.integer("llama.context_length"),
        rope_theta=metadata.number("llama.rope.freq_base", 10_000.0),
        norm_eps=metadata.number("llama.attention.layer_norm_rms_epsilon"),
        tied_embeddings="output.weight" not in metadata.file.tensors,
    )


def _vocab_size(metadata: _Metadata) -> int:
    """The width of the logits: what the embedding has, which may exceed the token list."""
    embedding = metadata.file.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise ModelError(f"{metadata.file.path}: tensor 'token_embd.weight' is missing")
    return embedding.shape[0]


def _read_text(metadata: _Metadata, parameters: ModelParameters) -> TextAssets:
    tokenizer_json = build_tokenizer_json(metadata.file.metadata)
    template = metadata.get("tokenizer.chat_template")
    bos = metadata.get("tokenizer.ggml.bos_token_id")
    return TextAssets(
        tokenizer_json=tokenizer_json,
        vocab_size=parameters.vocab_size,
        eos_token_ids=_eos_token_ids(metadata),
        bos_token_id=bos if isinstance(bos, int) else None,
        add_bos=_adds_bos(metadata),
        chat_template=template if isinstance(template, str) else None,
        max_position=parameters.max_position,
        special_tokens=_special_tokens(metadata),
    )


def _adds_bos(metadata: _Metadata) -> bool:
    """Files of the llama-bpe family written without the flag mean yes."""
    flag = metadata.get("tokenizer.ggml.add_bos_token")
    return bool(flag) if flag is not None else metadata.get("tokenizer.ggml.pre") == "llama-bpe"


def _eos_token_ids(metadata: _Metadata) -> tuple[int, ...]:
    ids = []
    for key in ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"):
        token_id = metadata.get(key)
        if isinstance(token_id, int):
            ids.append(token_id)
    by_text = control_tokens(metadata.file.metadata)
    ids += [by_text[text] for text in END_OF_TURN_TOKENS if text in by_text]
    if not ids:
        raise ModelError("the vocabulary names no end-of-sequence token")
    return tuple(dict.fromkeys(ids))


def _special_tokens(metadata: _Metadata) -> dict[str, str]:
    tokens = string_list(metadata.file.metadata, "tokenizer.ggml.tokens")
    special = {}
    for name, gguf_name in _SPECIAL_TOKEN_KEYS.items():
        token_id = metadata.get(f"tokenizer.ggml.{gguf_name}_token_id")
        if isinstance(token_id, int) and token_id < len(tokens):
            special[name] = tokens[token_id]
    return special
