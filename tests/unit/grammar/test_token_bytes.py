"""Bytes of tokens, for both families of tokenizers."""

import json
from typing import Any

import pytest

from grammar.errors import GrammarError
from grammar.token_bytes import token_bytes
from tests.small_vocabulary import SPECIAL_TOKENS, small_vocabulary


def document(model: dict[str, Any], decoder: dict[str, Any] | None, **more: Any) -> str:
    return json.dumps({"model": model, "decoder": decoder, "pre_tokenizer": None, **more})


def test_every_byte_has_its_token_and_special_tokens_have_no_bytes() -> None:
    vocabulary = small_vocabulary(num_padding=3)
    tokens = token_bytes(vocabulary.tokenizer_json, vocabulary.vocab_size)
    num_special = len(SPECIAL_TOKENS)
    assert tokens[:num_special] == [b""] * num_special
    assert tokens[num_special : num_special + 256] == [bytes([byte]) for byte in range(256)]
    assert "日本".encode() in tokens
    assert tokens[-3:] == [b"", b"", b""]


def test_sentence_piece_pieces() -> None:
    text = document(
        {"vocab": {"<unk>": 0, "<0x0A>": 1, "▁a": 2, "é": 3, "<tool>": 4, "beyond": 9}},
        {"type": "Sequence", "decoders": [{"type": "Replace"}, {"type": "ByteFallback"}]},
        added_tokens=[
            {"id": 0, "content": "<unk>", "special": True},
            {"id": 4, "content": "<tool>", "special": False},
        ],
    )
    assert token_bytes(text, 6) == [b"", b"\n", b" a", "é".encode(), b"<tool>", b""]


def test_unigram_vocabularies_are_lists() -> None:
    assert token_bytes(document({"vocab": [["a", -1.0], ["▁b", -2.0]]}, None), 2) == [b"a", b" b"]


def test_a_file_without_a_vocabulary_is_an_error() -> None:
    with pytest.raises(GrammarError, match="no vocabulary"):
        token_bytes(document({}, None), 2)
