"""Builds the text of a Hugging Face tokenizer.json from the vocabulary inside a GGUF file.

`tokenizer.ggml.model` says which kind it is: byte-level BPE (gpt2), which is described here with
runtime/pre_tokenizers.py, or SentencePiece BPE (llama), for runtime/sentencepiece_vocabulary.py.
Called by runtime/gguf_source.py.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from runtime.errors import ModelError
from runtime.gguf_file import MetadataValue
from runtime.pre_tokenizers import PreTokenizer, byte_level, pre_tokenizer
from runtime.sentencepiece_vocabulary import (
    CONTROL,
    UNUSED,
    USER_DEFINED,
    SentencePieces,
    sentencepiece_document,
)
from runtime.tokenizer_cache import cached_tokenizer_json

_JsonObject = dict[str, Any]
_Metadata = Mapping[str, MetadataValue]


def build_tokenizer_json(metadata: _Metadata) -> str:
    """Raises: ModelError that names a vocabulary kind which is not implemented."""
    kind = metadata.get("tokenizer.ggml.model")
    if kind == "gpt2":
        return _to_json(_byte_level_document(metadata))
    if kind == "llama":
        pieces = _sentence_pieces(metadata)
        return cached_tokenizer_json(pieces, lambda: _to_json(sentencepiece_document(pieces)))
    raise ModelError(
        f"the vocabulary kind {kind!r} is not supported (only byte-level BPE, 'gpt2', and"
        " SentencePiece BPE, 'llama')"
    )


def _to_json(document: _JsonObject) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def adds_bos(metadata: _Metadata) -> bool:
    """Whether a prompt begins with the first token: what the file says, else what files of its
    kind mean. (A last token, `add_eos_token`, would end every answer before it begins; none is
    ever added.)"""
    flag = metadata.get("tokenizer.ggml.add_bos_token")
    if flag is not None:
        return bool(flag)
    if metadata.get("tokenizer.ggml.model") == "llama":
        return True
    return pre_tokenizer(str(metadata.get("tokenizer.ggml.pre", ""))).adds_bos


def control_tokens(metadata: _Metadata) -> dict[str, int]:
    """Text to id of the tokens that are commands to the model, not text."""
    tokens = string_list(metadata, "tokenizer.ggml.tokens")
    kinds = token_types(metadata)
    return {tokens[i]: i for i, kind in enumerate(kinds) if kind == CONTROL}


def string_list(metadata: _Metadata, key: str) -> list[str]:
    """Raises: ModelError where the list is missing or holds something else."""
    value = metadata.get(key)
    if not isinstance(value, list) or not value or not isinstance(value[0], str):
        raise ModelError(f"the metadata entry {key!r} is missing or not a list of strings")
    return value


def token_types(metadata: _Metadata) -> list[int]:
    """The kind of each token, by id. Raises: ModelError where it does not fit the tokens."""
    return cast("list[int]", _one_for_each_token(metadata, "tokenizer.ggml.token_type", "kinds"))


def _one_for_each_token(metadata: _Metadata, key: str, what: str) -> list[Any]:
    values = metadata.get(key)
    num_tokens = len(string_list(metadata, "tokenizer.ggml.tokens"))
    if not isinstance(values, list) or len(values) != num_tokens or isinstance(values[0], str):
        raise ModelError(f"the metadata entry {key!r} does not list {num_tokens} {what}")
    return cast("list[Any]", values)


def _sentence_pieces(metadata: _Metadata) -> SentencePieces:
    unknown = metadata.get("tokenizer.ggml.unknown_token_id")
    return SentencePieces(
        tokens=string_list(metadata, "tokenizer.ggml.tokens"),
        scores=_one_for_each_token(metadata, "tokenizer.ggml.scores", "scores"),
        kinds=token_types(metadata),
        unknown_token_id=unknown if isinstance(unknown, int) else None,
        adds_space_prefix=bool(metadata.get("tokenizer.ggml.add_space_prefix", True)),
        # Phi-3's tokenizer.json says so of its tokens; GGUF files have no place for it.
        strips_after_special=metadata.get("general.architecture") == "phi3",
    )


def _byte_level_document(metadata: _Metadata) -> _JsonObject:
    rules = pre_tokenizer(str(metadata.get("tokenizer.ggml.pre", "")))
    tokens = string_list(metadata, "tokenizer.ggml.tokens")
    kinds = token_types(metadata)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(tokens, kinds),
        "normalizer": rules.normalizer,
        "pre_tokenizer": rules.rules,
        "post_processor": None,
        "decoder": byte_level(use_regex=True),
        "model": _bpe_model(
            tokens, kinds, merges=string_list(metadata, "tokenizer.ggml.merges"), rules=rules
        ),
    }


def _added_tokens(tokens: Sequence[str], kinds: Sequence[int]) -> list[_JsonObject]:
    return [
        {
            "id": token_id,
            "content": tokens[token_id],
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": kind == CONTROL,
        }
        for token_id, kind in enumerate(kinds)
        if kind in (CONTROL, USER_DEFINED)
    ]


def _bpe_model(
    tokens: Sequence[str], kinds: Sequence[int], *, merges: list[str], rules: PreTokenizer
) -> _JsonObject:
    """Unused tokens, which fill the list up to the embedding's size, have no text."""
    if len(set(tokens)) != len(tokens):
        raise ModelError("the vocabulary lists a token twice")
    vocabulary = {
        token: token_id
        for token_id, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
        if kind != UNUSED
    }
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": rules.ignores_merges,
        "vocab": vocabulary,
        "merges": merges,
    }
