"""The tokenizer.json of a large vocabulary is made once; no file that is kept can do harm."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from runtime.sentencepiece_vocabulary import SentencePieces
from runtime.tokenizer_cache import MIN_TOKENS, cached_tokenizer_json

LARGE = SentencePieces(
    tokens=[f"t{i}" for i in range(MIN_TOKENS)],
    scores=[-float(i) for i in range(MIN_TOKENS)],
    kinds=[1] * MIN_TOKENS,
    unknown_token_id=None,
    adds_space_prefix=True,
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "radixgate" / "tokenizers"


def builder(text: str) -> tuple[Callable[[], str], list[str]]:
    """A build that says so in the list."""
    built: list[str] = []

    def build() -> str:
        built.append(text)
        return text

    return build, built


def test_a_large_vocabulary_is_built_once(folder: Path) -> None:
    build, built = builder("größe")
    assert [cached_tokenizer_json(LARGE, build) for _ in range(3)] == ["größe"] * 3
    assert built == ["größe"]
    assert len(list(folder.iterdir())) == 1


def test_a_small_vocabulary_leaves_no_file(folder: Path) -> None:
    small = replace(LARGE, tokens=LARGE.tokens[1:], scores=[0.0] * 9, kinds=[1] * 9)
    build, built = builder("x")
    assert [cached_tokenizer_json(small, build) for _ in range(2)] == ["x", "x"]
    assert len(built) == 2
    assert not folder.exists()


@pytest.mark.parametrize(
    "other",
    [
        replace(LARGE, adds_space_prefix=False),
        replace(LARGE, strips_after_special=True),
        replace(LARGE, unknown_token_id=3),
        replace(LARGE, scores=[1.0, *LARGE.scores[1:]]),
        replace(LARGE, kinds=[3, *LARGE.kinds[1:]]),
        replace(LARGE, tokens=["t", "0t1", *LARGE.tokens[2:]]),
        replace(LARGE, tokens=[*LARGE.tokens, ""], scores=LARGE.scores, kinds=LARGE.kinds),
    ],
)
def test_whatever_differs_in_a_vocabulary_is_built_anew(
    folder: Path, other: SentencePieces
) -> None:
    assert cached_tokenizer_json(LARGE, lambda: "one") == "one"
    assert cached_tokenizer_json(other, lambda: "other") == "other"
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("content", [b"", b"{}", b"0" * 64 + b"\none", b"\xff\xfe"])
def test_a_damaged_file_is_built_anew(folder: Path, content: bytes) -> None:
    cached_tokenizer_json(LARGE, lambda: "one")
    file = next(folder.iterdir())
    file.write_bytes(content)
    assert cached_tokenizer_json(LARGE, lambda: "again") == "again"
    assert file.read_bytes() == hashlib.sha256(b"again").hexdigest().encode() + b"\nagain"


def test_a_folder_that_cannot_be_written_costs_only_time(folder: Path) -> None:
    folder.parent.parent.joinpath("radixgate").write_text("a file where the folder would be")
    build, built = builder("x")
    assert [cached_tokenizer_json(LARGE, build) for _ in range(2)] == ["x", "x"]
    assert len(built) == 2
