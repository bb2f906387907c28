"""From the vocabulary in a GGUF file to a tokenizer.json."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from tokenizers import Tokenizer

from runtime.errors import ModelError
from runtime.gguf_file import MetadataValue
from runtime.gguf_vocabulary import adds_bos, build_tokenizer_json, control_tokens

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


@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "llama-bpe", "qwen2", "default", "tekken"])
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
    with pytest.raises(ModelError, match="the pre-tokenizer 'viking' is not supported"):
        build_tokenizer_json(metadata("viking"))


@pytest.mark.parametrize("kind", ["t5", "bert", "rwkv", None])
def test_a_vocabulary_of_another_kind_is_named(kind: str | None) -> None:
    with pytest.raises(ModelError, match=f"the vocabulary kind {kind!r} is not supported"):
        build_tokenizer_json(metadata(changes={"tokenizer.ggml.model": kind}))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, False),
        ({"tokenizer.ggml.pre": "llama-bpe"}, True),
        ({"tokenizer.ggml.pre": "tekken"}, True),
        ({"tokenizer.ggml.pre": "llama-bpe", "tokenizer.ggml.add_bos_token": False}, False),
        ({"tokenizer.ggml.add_bos_token": True}, True),
        ({"tokenizer.ggml.model": "llama"}, True),
        ({"tokenizer.ggml.model": "llama", "tokenizer.ggml.add_bos_token": False}, False),
    ],
)
def test_a_prompt_begins_as_the_file_says_or_as_its_kind_does(
    changes: dict[str, Any], expected: bool
) -> None:
    assert adds_bos(metadata(changes=changes)) is expected


def test_unused_tokens_have_no_text() -> None:
    tokens = [*metadata()["tokenizer.ggml.tokens"], "[PAD1]"]  # type: ignore[misc]
    kinds = [*metadata()["tokenizer.ggml.token_type"], 5]  # type: ignore[misc]
    changes = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": kinds}
    tokenizer = Tokenizer.from_str(build_tokenizer_json(metadata(changes=changes)))
    assert tokenizer.id_to_token(len(tokens) - 1) is None
    assert tokenizer.decode(tokenizer.encode("[PAD1]").ids) == "[PAD1]"


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
