"""Detokenizer: when characters appear, and what becomes of broken ones."""

from gateway.detokenizer import Detokenizer
from gateway.tokenizer import Tokenizer
from tests.byte_tokenizer import IM_END, byte_assets


def detokenizer() -> Detokenizer:
    return Detokenizer(Tokenizer(byte_assets()))


def test_a_character_appears_with_its_last_byte() -> None:
    detok = detokenizer()
    assert [detok.feed(byte) for byte in "🌍é".encode()] == ["", "", "", "🌍", "", "é"]
    assert detok.flush() == ""


def test_an_unfinished_character_becomes_a_replacement_at_the_end() -> None:
    detok = detokenizer()
    assert [detok.feed(byte) for byte in "a🌍".encode()[:3]] == ["a", "", ""]
    assert detok.flush() == "\ufffd"


def test_bytes_that_cannot_begin_a_character_are_replaced_at_once() -> None:
    detok = detokenizer()
    assert detok.feed(0x80) + detok.feed(ord("a")) == "\ufffda"


def test_control_tokens_and_unknown_ids_have_no_text() -> None:
    detok = detokenizer()
    assert [detok.feed(IM_END), detok.feed(263), detok.feed(262)] == ["", "", "hello"]


def test_one_space_at_the_very_beginning_can_be_dropped() -> None:
    detok = Detokenizer(Tokenizer(byte_assets()), drops_space=True)
    assert [detok.feed(i) for i in (IM_END, 32, 32, ord("a"), 32)] == ["", "", " ", "a", " "]
    other = Detokenizer(Tokenizer(byte_assets()), drops_space=True)
    assert [other.feed(i) for i in (ord("a"), 32)] == ["a", " "]
    plain = Detokenizer(Tokenizer(byte_assets()), drops_space=True)
    assert [plain.feed(i) for i in (32, 32)] == ["", " "]
