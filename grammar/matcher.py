"""The protocol behind which every grammar engine stands. Knows token ids, not requests.

A mask row is a writable C-contiguous int32 numpy array of ceil(vocab_size / 32) words; bit i of
word w allows token 32 * w + i. Matchers are owned by one thread at a time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from grammar.spec import ConstraintSpec, PreparedConstraint

MaskRow = npt.NDArray[np.int32]


def mask_words(vocab_size: int) -> int:
    """Number of int32 words in a mask row."""
    return (vocab_size + 31) // 32


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What an engine needs to know of the tokenizer: the text of its tokenizer.json,
    the width of the logits (may exceed the tokenizer's size) and the end-of-sequence ids."""

    tokenizer_json: str
    vocab_size: int
    eos_token_ids: tuple[int, ...]


class Matcher(Protocol):
    """State of one constrained output."""

    def fill(self, mask_row: MaskRow) -> None:
        """Overwrites the row with the tokens allowed next; after the end only end-of-sequence."""

    def accept(self, token_ids: Sequence[int]) -> int:
        """Advances over the longest allowed prefix of `token_ids`; returns its length."""

    def rollback(self, num_tokens: int) -> None:
        """Takes back the last `num_tokens` accepted tokens."""

    def fork(self) -> "Matcher":
        """An independent copy in the same state."""

    def forced_tokens(self) -> list[int]:
        """Tokens that are the only way on from here, possibly none; the state stays as it is."""

    def is_accepting(self) -> bool:
        """Whether the output may end here."""

    def is_terminated(self) -> bool:
        """Whether end-of-sequence was accepted or nothing but it may follow."""


class GrammarEngine(Protocol):
    """One library, bound to one vocabulary. Thread-safe."""

    @property
    def name(self) -> str: ...

    def prepare(self, spec: ConstraintSpec) -> PreparedConstraint:
        """The grammar that enforces the constraint; plain work on text, without the library.

        Raises: UnsupportedConstraint with the JSON Pointer of what cannot be enforced.
        """

    def build(self, prepared: PreparedConstraint) -> Matcher:
        """A matcher in its initial state, to be forked per request.

        Raises: UnsupportedConstraint for what the library refuses.
        """


def compile_constraint(engine: GrammarEngine, spec: ConstraintSpec) -> Matcher:
    """Both halves at once, for who has no use for the prepared form."""
    return engine.build(engine.prepare(spec))
