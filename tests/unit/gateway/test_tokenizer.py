"""Tokenizer: ids of a text, exact bytes of each token, and which tokenizers are refused."""

import json
from dataclasses import replace

import pytest

from gateway.errors import InvalidRequest
from gateway.tokenizer import Tokenizer
from runtime.errors import ModelError
from tests.byte_tokenizer import END_OF_TEXT, IM_END, IM_START, byte_assets

SENTENCEPIECE = {
    "version": "1.0",
    "added_tokens": [
        {
            "id": 0,
            "content": "<s>",
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
    ],
    "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
    "pre_tokenizer": None,
    "post_processor": None,
    "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
    "model": {
        "type": "BPE",
        "byte_fallback": True,
        "vocab": {"<s>": 0, "<0xE2>": 1, "\u2581": 2, "a": 3, "\u2581a": 4},
        "merges": [["\u2581", "a"]],
    },
}


def test_text_becomes_the_merged_tokens_of_its_bytes() -> None:
    tokenizer = Tokenizer(byte_assets())
    assert tokenizer.encode("hello é", add_special=False) == [262, 32, 0xC3, 0xA9]


@pytest.mark.parametrize("text", ["", "hello", "<|endoftext|>" * 9, "héllo " * 50, "你" * 30])
def test_a_text_never_has_fewer_tokens_than_its_length_says(text: str) -> None:
    tokenizer = Tokenizer(byte_assets())
    at_least = tokenizer.min_num_tokens(text)
    assert len(text) / 20 <= at_least <= len(tokenizer.encode(text, add_special=False))


def test_the_length_says_nothing_where_a_tokenizer_may_rewrite_the_text() -> None:
    assets = replace(byte_assets(), tokenizer_json=json.dumps(SENTENCEPIECE), vocab_size=5)
    assert Tokenizer(assets).min_num_tokens("a" * 1000) == 0


def test_special_tokens_written_in_the_text_become_control_tokens() -> None:
    tokenizer = Tokenizer(byte_assets())
    assert tokenizer.encode("<|im_start|>a<|im_end|>", add_special=False) == [
        IM_START,
        ord("a"),
        IM_END,
    ]


def test_the_first_token_is_added_once_and_only_when_asked_for() -> None:
    tokenizer = Tokenizer(byte_assets(add_bos=True))
    assert tokenizer.encode("a", add_special=True) == [END_OF_TEXT, ord("a")]
    assert tokenizer.encode("<|endoftext|>a", add_special=True) == [END_OF_TEXT, ord("a")]
    assert tokenizer.encode("a", add_special=False) == [ord("a")]


def test_a_model_without_a_first_token_gets_none() -> None:
    assert Tokenizer(byte_assets()).encode("a", add_special=True) == [ord("a")]


def test_every_byte_level_token_has_its_exact_bytes() -> None:
    tokenizer = Tokenizer(byte_assets())
    assert [tokenizer.token_bytes(byte) for byte in range(256)] == [bytes([b]) for b in range(256)]
    assert tokenizer.token_bytes(262) == b"hello"


def test_control_tokens_are_flagged_and_have_their_written_form() -> None:
    tokenizer = Tokenizer(byte_assets())
    assert tokenizer.is_special(IM_END)
    assert tokenizer.token_bytes(IM_END) == b"<|im_end|>"
    assert not tokenizer.is_special(ord("a"))


@pytest.mark.parametrize("token_id", [263, 10**9, -1])
def test_an_id_beyond_the_vocabulary_has_no_bytes(token_id: int) -> None:
    assert Tokenizer(byte_assets()).token_bytes(token_id) == b""


def test_sentencepiece_spaces_and_byte_tokens_have_their_exact_bytes() -> None:
    assets = replace(byte_assets(), tokenizer_json=json.dumps(SENTENCEPIECE))
    tokenizer = Tokenizer(assets)
    assert [tokenizer.token_bytes(token_id) for token_id in range(5)] == [
        b"<s>",
        b"\xe2",
        b" ",
        b"a",
        b" a",
    ]


def test_a_lone_surrogate_is_refused_naming_the_parameter() -> None:
    with pytest.raises(InvalidRequest, match=r"U\+D83D") as caught:
        Tokenizer(byte_assets()).encode("a\ud83d", add_special=False, param="messages")
    assert caught.value.param == "messages"


def test_a_damaged_tokenizer_is_a_model_error() -> None:
    with pytest.raises(ModelError, match="cannot be read"):
        Tokenizer(replace(byte_assets(), tokenizer_json="{"))


def test_a_tokenizer_without_exact_bytes_is_a_model_error() -> None:
    word_piece = json.loads(byte_assets().tokenizer_json)
    word_piece["decoder"] = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    with pytest.raises(ModelError, match="WordPiece"):
        Tokenizer(replace(byte_assets(), tokenizer_json=json.dumps(word_piece)))


def test_a_stored_truncation_does_not_shorten_prompts() -> None:
    document = json.loads(byte_assets().tokenizer_json)
    document["truncation"] = {
        "direction": "Right",
        "max_length": 2,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    tokenizer = Tokenizer(replace(byte_assets(), tokenizer_json=json.dumps(document)))
    assert len(tokenizer.encode("abcdef", add_special=False)) == 6


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, False),
        ({"normalizer": {"type": "Prepend", "prepend": "\u2581"}}, True),
        ({"pre_tokenizer": {"type": "Metaspace", "prepend_scheme": "always"}}, True),
        ({"pre_tokenizer": {"type": "Metaspace", "prepend_scheme": "first"}}, False),
        ({"pre_tokenizer": {"type": "Metaspace", "prepend_scheme": "never"}}, False),
    ],
)
def test_whether_a_space_is_put_after_special_tokens_is_found_out(
    changes: dict[str, dict[str, str]], expected: bool
) -> None:
    if "pre_tokenizer" in changes:
        changes["pre_tokenizer"] |= {"replacement": "\u2581"}
    text = json.dumps(SENTENCEPIECE | changes)
    tokenizer = Tokenizer(replace(byte_assets(), tokenizer_json=text, vocab_size=5))
    assert tokenizer.puts_space_after(0) is expected
    assert not tokenizer.puts_space_after(3)


def test_a_piece_that_only_looks_like_a_byte_is_text() -> None:
    document = json.loads(json.dumps(SENTENCEPIECE))
    document["model"]["vocab"] |= {"<0xzz>": 5}
    assets = replace(byte_assets(), tokenizer_json=json.dumps(document), vocab_size=6)
    assert Tokenizer(assets).token_bytes(5) == b"<0xzz>"
