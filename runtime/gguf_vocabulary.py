"""Builds the text of a Hugging Face tokenizer.json from the vocabulary inside a GGUF file.

Byte-level BPE only (`tokenizer.ggml.model` = gpt2). The pre-tokenizer is chosen by
`tokenizer.ggml.pre`; one that is not in the table is an error, as a wrong one would split text
differently from what the model was trained on.
"""

import json
from collections.abc import Mapping
from typing import Any, cast

from runtime.errors import ModelError
from runtime.gguf_file import MetadataValue

_CONTROL, _USER_DEFINED = 3, 4  # ggml's enum llama_token_type

# The regexes that the tokenizers of these families publish in their tokenizer.json.
_LLAMA3_REGEX = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2_REGEX = _LLAMA3_REGEX.replace(r"\p{N}{1,3}", r"\p{N}")

_JsonObject = dict[str, Any]


def _byte_level(*, use_regex: bool) -> _JsonObject:
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


def _sequence(first: _JsonObject, second: _JsonObject) -> _JsonObject:
    return {"type": "Sequence", "pretokenizers": [first, second]}


def _split(regex: str) -> _JsonObject:
    return {
        "type": "Split",
        "pattern": {"Regex": regex},
        "behavior": "Isolated",
        "invert": False,
    }


# `use_regex` of ByteLevel is the GPT-2 pattern.
_PRE_TOKENIZERS: Mapping[str, _JsonObject] = {
    "gpt-2": _byte_level(use_regex=True),
    "smollm": _sequence({"type": "Digits", "individual_digits": True}, _byte_level(use_regex=True)),
    "llama-bpe": _sequence(_split(_LLAMA3_REGEX), _byte_level(use_regex=False)),
    "qwen2": _sequence(_split(_QWEN2_REGEX), _byte_level(use_regex=False)),
}
# Llama 3 takes a word that is a token as it is, without walking the merges.
_IGNORES_MERGES = frozenset({"llama-bpe"})


def build_tokenizer_json(metadata: Mapping[str, MetadataValue]) -> str:
    """Raises: ModelError that names a vocabulary kind which is not implemented."""
    kind, pre = metadata.get("tokenizer.ggml.model"), str(metadata.get("tokenizer.ggml.pre", ""))
    if kind != "gpt2":
        raise ModelError(
            f"the vocabulary kind {kind!r} is not supported (only byte-level BPE, 'gpt2')"
        )
    if pre not in _PRE_TOKENIZERS:
        known = ", ".join(sorted(_PRE_TOKENIZERS))
        raise ModelError(f"the pre-tokenizer {pre!r} is not supported (supported: {known})")
    tokens = string_list(metadata, "tokenizer.ggml.tokens")
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(tokens, token_types(metadata)),
        "normalizer": {"type": "NFC"} if pre == "qwen2" else None,
        "pre_tokenizer": _PRE_TOKENIZERS[pre],
        "post_processor": None,
        "decoder": _byte_level(use_regex=True),
        "model": _bpe_model(
            tokens,
            string_list(metadata, "tokenizer.ggml.merges"),
            ignore_merges=pre in _IGNORES_MERGES,
        ),
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def control_tokens(metadata: Mapping[str, MetadataValue]) -> dict[str, int]:
    """Text to id of the tokens that are commands to the model, not text."""
    tokens = string_list(metadata, "tokenizer.ggml.tokens")
    kinds = token_types(metadata)
    return {tokens[i]: i for i, kind in enumerate(kinds) if kind == _CONTROL}


def string_list(metadata: Mapping[str, MetadataValue], key: str) -> list[str]:
    """Raises: ModelError where the list is missing or holds something else."""
    value = metadata.get(key)
    if not isinstance(value, list) or not value or not isinstance(value[0], str):
        raise ModelError(f"the metadata entry {key!r} is missing or not a list of strings")
    return value


def token_types(metadata: Mapping[str, MetadataValue]) -> list[int]:
    """The kind of each token, by id. Raises: ModelError where it does not fit the tokens."""
    kinds = metadata.get("tokenizer.ggml.token_type")
    num_tokens = len(string_list(metadata, "tokenizer.ggml.tokens"))
    if not isinstance(kinds, list) or len(kinds) != num_tokens:
        raise ModelError(
            f"the metadata entry 'tokenizer.ggml.token_type' does not list {num_tokens} kinds"
        )
    return cast("list[int]", kinds)


def _added_tokens(tokens: list[str], kinds: list[int]) -> list[_JsonObject]:
    return [
        {
            "id": token_id,
            "content": tokens[token_id],
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": kind == _CONTROL,
        }
        for token_id, kind in enumerate(kinds)
        if kind in (_CONTROL, _USER_DEFINED)
    ]


def _bpe_model(tokens: list[str], merges: list[str], *, ignore_merges: bool) -> _JsonObject:
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise ModelError("the vocabulary lists a token twice")
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": ignore_merges,
        "vocab": vocabulary,
        "merges": merges,
    }
