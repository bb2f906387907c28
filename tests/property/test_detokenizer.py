"""Detokenizing step by step equals decoding all bytes at once, for any tokens whatsoever."""

from hypothesis import example, given
from hypothesis import strategies as st

from gateway.detokenizer import Detokenizer
from gateway.tokenizer import Tokenizer
from tests.byte_tokenizer import IM_START, VOCAB_SIZE, byte_assets

TOKENIZER = Tokenizer(byte_assets())
token_lists = st.lists(st.integers(0, VOCAB_SIZE - 1), max_size=40)
texts_as_bytes = st.text(max_size=12).map(lambda text: list(text.encode()))


def whole_text(token_ids: list[int]) -> str:
    shown = [token_id for token_id in token_ids if not TOKENIZER.is_special(token_id)]
    return b"".join(map(TOKENIZER.token_bytes, shown)).decode(errors="replace")


@given(token_lists)
@example([0xF0, 0x9F, IM_START, 0x8C, 0x8D])
def test_the_pieces_joined_are_the_text_of_the_whole(token_ids: list[int]) -> None:
    detokenizer = Detokenizer(TOKENIZER)
    pieces = [detokenizer.feed(token_id) for token_id in token_ids]
    assert "".join(pieces) + detokenizer.flush() == whole_text(token_ids)


@given(texts_as_bytes)
def test_valid_text_is_never_replaced_and_held_back_by_less_than_a_character(
    token_ids: list[int],
) -> None:
    detokenizer = Detokenizer(TOKENIZER)
    sent = ""
    for count, token_id in enumerate(token_ids, start=1):
        sent += detokenizer.feed(token_id)
        assert sent == bytes(token_ids[:count]).decode(errors="ignore")
    assert detokenizer.flush() == ""


@given(token_lists, st.data())
def test_what_was_sent_before_any_split_is_a_prefix_of_the_whole(
    token_ids: list[int], data: st.DataObject
) -> None:
    split = data.draw(st.integers(0, len(token_ids)))
    detokenizer = Detokenizer(TOKENIZER)
    sent = "".join(detokenizer.feed(token_id) for token_id in token_ids[:split])
    assert whole_text(token_ids).startswith(sent)


@given(st.lists(st.integers(0, 255), max_size=30))
def test_byte_tokens_decode_as_the_tokenizers_library_decodes_them(token_ids: list[int]) -> None:
    detokenizer = Detokenizer(TOKENIZER)
    text = "".join(map(detokenizer.feed, token_ids)) + detokenizer.flush()
    assert text == TOKENIZER._tokenizer.decode(token_ids, skip_special_tokens=True)
