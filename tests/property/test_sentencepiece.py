"""The tokenizer made from SentencePiece's scores splits any text as SentencePiece would."""

from typing import Any

from hypothesis import assume, example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer as LibraryTokenizer

from gateway.detokenizer import Detokenizer
from gateway.tokenizer import Tokenizer
from runtime.gguf_vocabulary import build_tokenizer_json
from runtime.text_assets import TextAssets
from tests.sentencepiece import SPACE, AmbiguousJoin, naive_pieces, sentencepiece_metadata

LETTERS = "abc"
ALPHABET = LETTERS + SPACE
words = st.text(ALPHABET, min_size=2, max_size=4)
vocabularies = st.lists(words, unique=True, max_size=25).map(lambda pieces: [*pieces, *ALPHABET])
texts = st.text(LETTERS + "  é🌍\n", max_size=25)


def library(pieces: list[str], **options: Any) -> LibraryTokenizer:
    return LibraryTokenizer.from_str(
        build_tokenizer_json(sentencepiece_metadata(pieces, **options))
    )


def assets(pieces: list[str], **options: Any) -> TextAssets:
    metadata = sentencepiece_metadata(pieces, **options)
    return TextAssets(
        tokenizer_json=build_tokenizer_json(metadata),
        vocab_size=len(metadata["tokenizer.ggml.tokens"]),
        eos_token_ids=(2,),
        bos_token_id=1,
        add_bos=True,
        chat_template=None,
        max_position=64,
    )


@given(vocabularies, texts, st.booleans())
@example(["ab", "aba", *ALPHABET], "ababa aba", True)
@example(["aa", "aaa", *ALPHABET], "aaaaaaaa", False)
def test_text_is_split_into_the_same_pieces(
    pieces: list[str], text: str, adds_prefix: bool
) -> None:
    scores = {piece: -float(rank) for rank, piece in enumerate(pieces)}
    try:
        expected = naive_pieces(text, scores, adds_prefix=adds_prefix)
    except AmbiguousJoin:
        assume(False)
    changes = {"tokenizer.ggml.add_space_prefix": adds_prefix}
    assert library(pieces, changes=changes).encode(text).tokens == expected


@given(vocabularies, texts)
def test_every_text_comes_back(pieces: list[str], text: str) -> None:
    tokenizer = library(pieces)
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


@given(vocabularies, texts)
def test_tokens_one_by_one_are_the_text_with_the_space_that_was_put_first(
    pieces: list[str], text: str
) -> None:
    tokenizer = Tokenizer(assets(pieces))
    detokenizer = Detokenizer(tokenizer)
    sent = [detokenizer.feed(i) for i in tokenizer.encode(text, add_special=False)]
    assert "".join(sent) + detokenizer.flush() == (f" {text}" if text else "")
    assert "\ufffd" not in "".join(sent)
