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


def text_after(tokenizer: Tokenizer, prompt: str, answer: str) -> str:
    """What the answer's tokens are shown as, one by one, after the prompt's. Its tokens are those
    that the whole text has after the prompt's."""
    prompt_ids = tokenizer.encode(prompt, add_special=True)
    whole_ids = tokenizer.encode(prompt + answer, add_special=True)
    assert whole_ids[: len(prompt_ids)] == prompt_ids
    detokenizer = Detokenizer(tokenizer, drops_space=tokenizer.puts_space_after(prompt_ids[-1]))
    sent = [detokenizer.feed(token_id) for token_id in whole_ids[len(prompt_ids) :]]
    assert "\ufffd" not in "".join(sent)
    return "".join(sent) + detokenizer.flush()


@given(vocabularies, texts, st.booleans())
@example([f"{SPACE}a", *ALPHABET], " a", True)
def test_an_answer_after_a_special_token_is_shown_as_it_was_written(
    pieces: list[str], text: str, adds_prefix: bool
) -> None:
    changes = {"tokenizer.ggml.add_space_prefix": adds_prefix}
    tokenizer = Tokenizer(assets(pieces, changes=changes))
    assert text_after(tokenizer, "", text) == text
    assert text_after(tokenizer, "</s>", text) == text


@given(vocabularies, texts, st.booleans())
def test_an_answer_in_the_middle_of_a_text_keeps_its_spaces(
    pieces: list[str], text: str, adds_prefix: bool
) -> None:
    """A line feed, which is no piece, keeps the prompt's tokens apart from the answer's."""
    changes = {"tokenizer.ggml.add_space_prefix": adds_prefix}
    tokenizer = Tokenizer(assets(pieces, changes=changes))
    assert text_after(tokenizer, "a\n", text) == text


@given(vocabularies, st.lists(st.integers(0, 264), max_size=30), st.booleans())
def test_any_tokens_are_shown_as_the_library_decodes_them(
    pieces: list[str], token_ids: list[int], drops_space: bool
) -> None:
    tokenizer = Tokenizer(assets(pieces))
    detokenizer = Detokenizer(tokenizer, drops_space=drops_space)
    text = "".join(map(detokenizer.feed, token_ids)) + detokenizer.flush()
    shown = [i for i in token_ids if not tokenizer.is_special(i)]
    expected = b"".join(map(tokenizer.token_bytes, shown)).decode(errors="replace")
    assert text == (expected.removeprefix(" ") if drops_space else expected)
