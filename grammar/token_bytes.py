"""The bytes of each token of a tokenizer.json, for engines that want them instead of the file."""

import json
import re
from typing import Any

from grammar.errors import GrammarError

BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
WORD_START = "\u2581"  # how SentencePiece writes a space


def token_bytes(tokenizer_json: str, vocab_size: int) -> list[bytes]:
    """One entry an id; empty for special tokens and ids without a token, which have no text.

    Raises: GrammarError for a vocabulary that is neither byte-level nor SentencePiece.
    """
    document = json.loads(tokenizer_json)
    decode = _byte_level if _is_byte_level(document) else _sentence_piece
    tokens = [b""] * vocab_size
    for text, token_id in _vocabulary(document).items():
        if token_id < vocab_size:
            tokens[token_id] = decode(text)
    for added in document.get("added_tokens") or ():
        if added["id"] < vocab_size:
            tokens[added["id"]] = b"" if added["special"] else added["content"].encode()
    return tokens


def _vocabulary(document: dict[str, Any]) -> dict[str, int]:
    vocab = document["model"].get("vocab")
    if isinstance(vocab, dict):
        return vocab
    if isinstance(vocab, list):  # Unigram: [token, score] in the order of ids
        return {token: index for index, (token, _) in enumerate(vocab)}
    raise GrammarError("the tokenizer.json has no vocabulary")


def _is_byte_level(document: dict[str, Any]) -> bool:
    for part in (document.get("decoder"), document.get("pre_tokenizer")):
        if part is None:
            continue
        steps = part.get("decoders") or part.get("pretokenizers") or [part]
        if any(step["type"] == "ByteLevel" for step in steps):
            return True
    return False


def _byte_level(text: str) -> bytes:
    return bytes(BYTES_OF_CHARACTERS[character] for character in text)


def _sentence_piece(text: str) -> bytes:
    piece = BYTE_PIECE.fullmatch(text)
    if piece is not None:
        return bytes([int(piece.group(1), 16)])
    return text.replace(WORD_START, " ").encode()


def _bytes_of_characters() -> dict[str, int]:
    """GPT-2's alphabet: printable bytes stand for themselves, the others are moved up."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    moved = (byte for byte in range(256) if byte not in printable)
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update({chr(0x100 + index): byte for index, byte in enumerate(moved)})
    return alphabet


BYTES_OF_CHARACTERS = _bytes_of_characters()
