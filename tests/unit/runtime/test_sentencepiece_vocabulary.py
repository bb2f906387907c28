"""From a SentencePiece vocabulary in a GGUF file to a tokenizer.json."""

import json
import math
from typing import Any

import pytest
from tokenizers import Tokenizer

from runtime.errors import ModelError
from runtime.gguf_vocabulary import build_tokenizer_json
from tests.sentencepiece import SPACE, sentencepiece_metadata

PIECES = [f"{SPACE}t", "he", f"{SPACE}the", *f"{SPACE}the"]


def tokenizer(pieces: list[str] | None = None, **options: Any) -> Tokenizer:
    metadata = sentencepiece_metadata(pieces or PIECES, **options)
    return Tokenizer.from_str(build_tokenizer_json(metadata))


def test_pairs_are_joined_in_the_order_of_scores() -> None:
    merges = json.loads(build_tokenizer_json(sentencepiece_metadata(PIECES)))["model"]["merges"]
    assert merges == [[SPACE, "t"], ["h", "e"], [f"{SPACE}t", "he"]]
    assert tokenizer().encode("the the").tokens == [f"{SPACE}the", f"{SPACE}the"]


def test_scores_and_not_places_in_the_list_decide() -> None:
    metadata = sentencepiece_metadata(["ab", "bc", *"abc"])
    metadata["tokenizer.ggml.add_space_prefix"] = False
    assert Tokenizer.from_str(build_tokenizer_json(metadata)).encode("abc").tokens == ["ab", "c"]
    metadata["tokenizer.ggml.scores"][-5:-3] = [-9.0, -1.0]
    assert Tokenizer.from_str(build_tokenizer_json(metadata)).encode("abc").tokens == ["a", "bc"]


def test_characters_that_are_no_pieces_become_their_bytes() -> None:
    tokens = tokenizer().encode("h€").tokens
    assert tokens == [SPACE, "h", "<0xE2>", "<0x82>", "<0xAC>"]


def test_a_space_is_put_first_and_after_each_special_token() -> None:
    assert tokenizer().encode("he</s>he").tokens == [SPACE, "he", "</s>", SPACE, "he"]


def test_no_space_is_put_first_where_the_file_says_so() -> None:
    changes = {"tokenizer.ggml.add_space_prefix": False}
    assert tokenizer(changes=changes).encode("he</s>he").tokens == ["he", "</s>", "he"]


@pytest.mark.parametrize("written", ["  ", SPACE * 2])
def test_user_defined_runs_of_spaces_are_found_however_they_are_written(written: str) -> None:
    found = tokenizer(user_defined=[written], changes={"tokenizer.ggml.add_space_prefix": False})
    encoded = found.encode("he   he")
    assert encoded.tokens == ["he", "  ", SPACE, "he"]
    assert found.decode(encoded.ids) == "he   he"


def test_user_defined_tokens_are_text_and_control_tokens_are_not() -> None:
    found = tokenizer(user_defined=["<b>"], control=["<turn>"])
    encoded = found.encode("<turn>the<b>")
    assert encoded.tokens == ["<turn>", f"{SPACE}the", "<b>"]
    assert found.decode(encoded.ids) == "the<b>"


def test_no_join_makes_a_special_token_or_a_byte() -> None:
    metadata = sentencepiece_metadata(["<s", "<0x4", "1>", *"<s>0x41"[:6]], user_defined=["<sx"])
    merges = json.loads(build_tokenizer_json(metadata))["model"]["merges"]
    assert ["<", "s"] in merges
    assert not {"<s>", "<sx", "<0x41>"} & {"".join(merge) for merge in merges}


def test_whitespace_after_a_special_token_of_phi_3_is_dropped() -> None:
    options = {"control": ["<|user|>"]}
    text = "<|user|>\nhe"
    assert tokenizer(**options).encode(text).tokens == ["<|user|>", SPACE, "<0x0A>", "he"]
    phi = {"general.architecture": "phi3"}
    found = tokenizer(**options, changes=phi)
    assert found.encode(text).ids == [found.token_to_id(t) for t in ("<|user|>", SPACE, "he")]
    assert "<0x0A>" in found.encode("<s>\nhe").tokens


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("scores", None, "'tokenizer.ggml.scores' does not list 265 scores"),
        ("scores", [0.0], "does not list 265 scores"),
        ("scores", [math.nan] * 265, "a score that is no number"),
        ("token_type", [1], "does not list 265 kinds"),
        ("tokens", ["a"] * 265, "lists a token twice"),
        ("tokens", [], "is missing or not a list of strings"),
    ],
)
def test_a_vocabulary_that_contradicts_itself_is_named(key: str, value: Any, message: str) -> None:
    changes = {f"tokenizer.ggml.{key}": value}
    with pytest.raises(ModelError, match=message):
        build_tokenizer_json(sentencepiece_metadata("abcdef", changes=changes))


def test_text_without_bytes_and_unknown_token_would_be_lost_and_is_refused() -> None:
    metadata = sentencepiece_metadata("ab")
    metadata["tokenizer.ggml.tokens"][10] = "<0xzz>"
    assert build_tokenizer_json(metadata)
    metadata["tokenizer.ggml.unknown_token_id"] = None
    metadata["tokenizer.ggml.token_type"][0] = 3
    with pytest.raises(ModelError, match="neither a token for each byte nor an unknown token"):
        build_tokenizer_json(metadata)
