"""From the vocabulary in a GGUF file to a tokenizer.json."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from tokenizers import Tokenizer

from runtime.errors import ModelError
from runtime.gguf_file import MetadataValue
from runtime.gguf_vocabulary import build_tokenizer_json, control_tokens

BYTES = [chr(code) for code in (*range(33, 127), *range(161, 173), *range(174, 256))]
BYTES += [chr(256 + i) for i in range(256 - len(BYTES))]


def metadata(
    pre: str = "gpt-2", changes: Mapping[str, Any] | None = None
) -> dict[str, MetadataValue]:
    tokens = ["<|end|>", "<tool>", *BYTES, "12", "123", "Ġ1", "ĠĠ", "ab"]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3, 4, *[1] * (len(tokens) - 2)],
        "tokenizer.ggml.merges": ["Ġ 1", "1 2", "12 3", "Ġ Ġ", "a b"],
    } | dict(changes or {})


def tokens_of(text: str, pre: str) -> list[str]:
    tokenizer = Tokenizer.from_str(build_tokenizer_json(metadata(pre)))
    tokens: list[str] = tokenizer.encode(text).tokens
    return tokens


@pytest.mark.parametrize(
    ("pre", "expected"),
    [
        ("gpt-2", ["Ġ", "Ġ1", "2", "3", "4", "Ċ"]),
        ("smollm", ["ĠĠ", "1", "2", "3", "4", "Ċ"]),
        ("llama-bpe", ["Ġ", "Ġ", "123", "4", "Ċ"]),
        ("qwen2", ["Ġ", "Ġ", "1", "2", "3", "4", "Ċ"]),
    ],
)
def test_each_pre_tokenizer_splits_numbers_its_own_way(pre: str, expected: list[str]) -> None:
    assert tokens_of("  1234\n", pre) == expected


@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "llama-bpe", "qwen2"])
def test_any_text_decodes_to_itself(pre: str) -> None:
    text = "ab  12 Größe 日本 😀\r\n\t end\x00"
    tokenizer = Tokenizer.from_str(build_tokenizer_json(metadata(pre)))
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_control_tokens_are_special_and_user_defined_ones_are_text() -> None:
    tokenizer = Tokenizer.from_str(build_tokenizer_json(metadata()))
    encoded = tokenizer.encode("ab<|end|><tool>")
    assert encoded.tokens == ["ab", "<|end|>", "<tool>"]
    assert tokenizer.decode(encoded.ids) == "ab<tool>"
    assert control_tokens(metadata()) == {"<|end|>": 0}


def test_ids_are_the_places_in_the_list() -> None:
    document = json.loads(build_tokenizer_json(metadata()))
    assert document["model"]["vocab"]["<tool>"] == 1
    assert document["model"]["vocab"]["ab"] == len(document["model"]["vocab"]) - 1


def test_an_unknown_pre_tokenizer_is_named() -> None:
    with pytest.raises(ModelError, match="the pre-tokenizer 'tekken' is not supported"):
        build_tokenizer_json(metadata("tekken"))


def test_a_sentencepiece_vocabulary_is_named() -> None:
    with pytest.raises(ModelError, match="the vocabulary kind 'llama' is not supported"):
        build_tokenizer_json(metadata(changes={"tokenizer.ggml.model": "llama"}))


@pytest.mark.parametrize("key", ["tokens", "merges", "token_type"])
def test_a_missing_list_is_named(key: str) -> None:
    incomplete = metadata()
    del incomplete[f"tokenizer.ggml.{key}"]
    with pytest.raises(ModelError, match=f"tokenizer.ggml.{key}"):
        build_tokenizer_json(incomplete)


def test_a_token_listed_twice_is_an_error() -> None:
    twice = metadata(
        changes={"tokenizer.ggml.tokens": ["a", "a"], "tokenizer.ggml.token_type": [1, 1]}
    )
    with pytest.raises(ModelError, match="lists a token twice"):
        build_tokenizer_json(twice)
