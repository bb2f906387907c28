"""SentencePiece vocabularies for tests, and a slow, plain reading of its BPE.

From the description in Kudo and Richardson, "SentencePiece" (2018), section 3.1, and of the
options by which models differ: the space put first, bytes for unknown characters.
"""

from collections.abc import Iterable, Sequence
from typing import Any

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
SPACE = "\u2581"
SPECIAL = ("<unk>", "<s>", "</s>")


def sentencepiece_metadata(
    pieces: Iterable[str],
    *,
    user_defined: Sequence[str] = (),
    control: Sequence[str] = (),
    changes: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """GGUF metadata of a vocabulary: special tokens, 256 bytes, user-defined tokens, more control
    tokens, then the pieces, of which the first has the highest score."""
    pieces = list(pieces)
    tokens = [*SPECIAL, *(f"<0x{b:02X}>" for b in range(256)), *user_defined, *control, *pieces]
    num_user, num_control = len(user_defined), len(control)
    kinds = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[USER_DEFINED] * num_user]
    kinds += [CONTROL] * num_control + [NORMAL] * len(pieces)
    scores = [0.0] * (259 + num_user + num_control) + [-float(i) for i in range(len(pieces))]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    } | (changes or {})


class AmbiguousJoin(Exception):
    """Two overlapping pairs of neighbours make the same piece, which no list of pairs settles."""


def naive_pieces(text: str, scores: dict[str, float], *, adds_prefix: bool) -> list[str]:
    """The pieces of a text without special tokens; characters that are no pieces become bytes.

    Raises: AmbiguousJoin.
    """
    if not text:
        return []
    symbols = list((SPACE if adds_prefix else "") + text.replace(" ", SPACE))
    while (best := _best_pair(symbols, scores)) is not None:
        symbols[best : best + 2] = [symbols[best] + symbols[best + 1]]
    pieces: list[str] = []
    for symbol in symbols:
        known = symbol in scores
        pieces += [symbol] if known else [f"<0x{byte:02X}>" for byte in symbol.encode()]
    return pieces


def _best_pair(symbols: list[str], scores: dict[str, float]) -> int | None:
    joined = [a + b for a, b in zip(symbols, symbols[1:], strict=False)]
    places = [i for i, piece in enumerate(joined) if piece in scores]
    if not places:
        return None
    best = max(places, key=lambda i: (scores[joined[i]], -i))
    if joined[best : best + 2] == [joined[best]] * 2 and symbols[best] != symbols[best + 1]:
        raise AmbiguousJoin
    return best
