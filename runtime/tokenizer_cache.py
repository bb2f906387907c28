"""Keeps the tokenizer.json of large SentencePiece vocabularies between runs: deriving its merges
takes 0.8 s for 262,144 tokens, reading it back a tenth. Called by runtime/gguf_vocabulary.py."""

import hashlib
import os
from array import array
from collections.abc import Callable
from pathlib import Path

from runtime.cache_folder import cache_folder
from runtime.sentencepiece_vocabulary import SentencePieces

# What smaller vocabularies take is not worth a file.
MIN_TOKENS = 50_000
# Counts up with every change to what is made of a vocabulary.
_VERSION = 1


def cached_tokenizer_json(pieces: SentencePieces, build: Callable[[], str]) -> str:
    """What `build` makes of the pieces, or made of the same ones before."""
    if len(pieces.tokens) < MIN_TOKENS:
        return build()
    file = cache_folder() / "tokenizers" / f"{_digest_of(pieces)}.json"
    kept = _read(file)
    if kept is not None:
        return kept
    text = build()
    _write(file, text)
    return text


def _digest_of(pieces: SentencePieces) -> str:
    options = (pieces.unknown_token_id, pieces.adds_space_prefix, pieces.strips_after_special)
    digest = hashlib.sha256(f"{_VERSION} {options} {len(pieces.tokens)}\0".encode())
    for token in pieces.tokens:
        digest.update(len(token).to_bytes(4, "little"))
    digest.update("".join(pieces.tokens).encode())
    digest.update(array("d", pieces.scores).tobytes())
    digest.update(array("d", pieces.kinds).tobytes())
    return digest.hexdigest()


def _read(file: Path) -> str | None:
    """The text; None where there is none, or not all of it."""
    try:
        expected, _, text = file.read_bytes().partition(b"\n")
    except OSError:
        return None
    is_whole = hashlib.sha256(text).hexdigest().encode() == expected
    return text.decode() if is_whole else None


def _write(file: Path, text: str) -> None:
    """Beside the file first, so that no other process sees half of it. A cache that cannot be
    written costs only time."""
    content = text.encode()
    new = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        new.write_bytes(hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
        new.replace(file)
    except OSError:
        return
