"""A SentencePiece BPE vocabulary (`tokenizer.ggml.model` = llama) as a Hugging Face tokenizer.json.

SentencePiece joins the two neighbours whose union is the piece of the highest score, the leftmost
first; a Hugging Face BPE joins by a list of pairs. The list is derived here: each piece in the
order of scores, in every way to cut it into two other pieces. Where one piece can be had from
overlapping pairs at once (`aba` in `ab a ba`), the pair with the longer left part is taken, which
is not always the leftmost; Hugging Face's own conversions have that limit too.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runtime.errors import ModelError

# ggml's enum llama_token_type.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
SPACE_MARK = "\u2581"
# Of Phi-3's special tokens those after which whitespace stays.
_PLAIN = ("<unk>", "<s>", "<|endoftext|>")
_ALL_BYTES = frozenset(f"<0x{byte:02X}>" for byte in range(256))

_JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SentencePieces:
    """The vocabulary, by token id. `unknown_token_id` is the token of characters that are no
    pieces, where the vocabulary has no tokens for their bytes. `adds_space_prefix`: a space is
    put before a text and after each special token. `strips_after_special`: whitespace after a
    special token is dropped."""

    tokens: Sequence[str]
    scores: Sequence[float]
    kinds: Sequence[int]
    unknown_token_id: int | None
    adds_space_prefix: bool
    strips_after_special: bool = False


def sentencepiece_document(pieces: SentencePieces) -> _JsonObject:
    """The tokenizer.json. Raises: ModelError for a vocabulary that contradicts itself."""
    vocabulary = _vocabulary(pieces)
    unknown = _unknown_token(pieces)
    if unknown is None and not vocabulary.keys() >= _ALL_BYTES:
        raise ModelError("the vocabulary has neither a token for each byte nor an unknown token")
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(pieces),
        "normalizer": _normalizer(adds_space_prefix=pieces.adds_space_prefix),
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": _decoder(adds_space_prefix=pieces.adds_space_prefix),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": unknown,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": _merges(pieces),
        },
    }


def _vocabulary(pieces: SentencePieces) -> dict[str, int]:
    """Unused tokens have no text."""
    texts = [_as_text(pieces, token_id) for token_id in range(len(pieces.tokens))]
    if len(set(texts)) != len(texts):
        raise ModelError("the vocabulary lists a token twice")
    return {text: i for i, text in enumerate(texts) if pieces.kinds[i] != UNUSED}


def _unknown_token(pieces: SentencePieces) -> str | None:
    token_id = pieces.unknown_token_id
    if token_id is not None and 0 <= token_id < len(pieces.tokens):
        return pieces.tokens[token_id]
    marked = (i for i, kind in enumerate(pieces.kinds) if kind == UNKNOWN)
    return next((pieces.tokens[i] for i in marked), None)


def _as_text(pieces: SentencePieces, token_id: int) -> str:
    """User-defined tokens are compared with the text before its spaces are marked."""
    token = pieces.tokens[token_id]
    return token.replace(SPACE_MARK, " ") if pieces.kinds[token_id] == USER_DEFINED else token


def _added_tokens(pieces: SentencePieces) -> list[_JsonObject]:
    return [
        {
            "id": token_id,
            "content": _as_text(pieces, token_id),
            "single_word": False,
            "lstrip": False,
            "rstrip": pieces.strips_after_special and pieces.tokens[token_id] not in _PLAIN,
            "normalized": False,
            "special": kind != USER_DEFINED,
        }
        for token_id, kind in enumerate(pieces.kinds)
        if kind in (UNKNOWN, CONTROL, USER_DEFINED)
    ]


def _normalizer(*, adds_space_prefix: bool) -> _JsonObject:
    marks: _JsonObject = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE_MARK}
    if not adds_space_prefix:
        return marks
    prefix = {"type": "Prepend", "prepend": SPACE_MARK}
    return {"type": "Sequence", "normalizers": [prefix, marks]}


def _decoder(*, adds_space_prefix: bool) -> _JsonObject:
    steps: list[_JsonObject] = [
        {"type": "Replace", "pattern": {"String": SPACE_MARK}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if adds_space_prefix:
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {"type": "Sequence", "decoders": steps}


def _merges(pieces: SentencePieces) -> list[tuple[str, str]]:
    """Only normal pieces are joined and come out of a join; the others stand for themselves."""
    scores = pieces.scores
    if not all(map(math.isfinite, scores)):
        raise ModelError("the vocabulary has a score that is no number")
    ids = [i for i, kind in enumerate(pieces.kinds) if kind == NORMAL]
    ids.sort(key=lambda i: -scores[i])  # stable: equal scores in the order of ids
    ordered = [pieces.tokens[i] for i in ids]
    known = frozenset(ordered)
    return [
        (piece[:cut], piece[cut:])
        for piece in ordered
        for cut in range(len(piece) - 1, 0, -1)
        if piece[:cut] in known and piece[cut:] in known
    ]
