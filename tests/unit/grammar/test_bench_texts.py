"""Tokens that spell a text byte for byte, whatever the tokenizer does by itself."""

import json

import pytest

from grammar.bench_texts import TokenTexts
from grammar.matcher import Vocabulary
from grammar.token_bytes import token_bytes
from tests.small_vocabulary import small_vocabulary


def spelled(vocabulary: Vocabulary, token_ids: list[int] | None) -> str:
    tokens = token_bytes(vocabulary.tokenizer_json, vocabulary.vocab_size)
    return b"".join(tokens[token_id] for token_id in token_ids or ()).decode()


@pytest.mark.parametrize("text", ['{"name":"日本"}', "", "é <|im_end|> x", "\x00"])
def test_the_tokens_are_those_of_the_text_and_none_is_special(text: str) -> None:
    vocabulary = small_vocabulary()
    token_ids = TokenTexts(vocabulary).encode(text)
    assert spelled(vocabulary, token_ids) == text
    assert not {0, 1, 2}.intersection(token_ids or ())


def test_the_tokenizer_chooses_the_tokens() -> None:
    token_ids = TokenTexts(small_vocabulary()).encode('{"name":123}')
    assert len(token_ids or ()) == len(['{"', "name", '":', "123", "}"])


def test_where_the_tokenizer_spells_another_text_the_longest_tokens_are_taken() -> None:
    document = json.loads(small_vocabulary().tokenizer_json)
    document["normalizer"] = {"type": "Prepend", "prepend": " "}
    vocabulary = Vocabulary(json.dumps(document), small_vocabulary().vocab_size, (0,))
    token_ids = TokenTexts(vocabulary).encode('{"name":1}')
    assert spelled(vocabulary, token_ids) == '{"name":1}'
    assert len(token_ids or ()) == len(['{"', "name", '":', "1", "}"])


def test_a_text_without_tokens_is_none() -> None:
    document = json.loads(small_vocabulary().tokenizer_json)
    vocab = document["model"]["vocab"]
    vocab["\u0100"] = vocab.pop("~")
    vocabulary = Vocabulary(json.dumps(document), small_vocabulary().vocab_size, (0,))
    assert TokenTexts(vocabulary).encode("a~") is None
