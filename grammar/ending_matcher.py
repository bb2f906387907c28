"""The Matcher that every engine hands out: the library's parser plus the end of sequence.

Libraries differ in what they do at the end (stop by themselves, refuse a stop token, raise).
Here the end-of-sequence ids never reach the library, so all engines end in the same way.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from grammar.errors import MatcherFailed
from grammar.matcher import MaskRow, mask_words


class Parser(Protocol):
    """A library's parser over tokens that carry text; each method raises MatcherFailed on error."""

    def fill(self, mask_row: MaskRow) -> None:
        """Overwrites the row with the text tokens that may follow."""

    def accept(self, token_ids: Sequence[int]) -> int:
        """Advances over the longest allowed prefix; returns its length."""

    def rollback(self, num_tokens: int) -> None: ...

    def fork(self) -> "Parser": ...

    def forced_tokens(self) -> list[int]: ...

    def is_accepting(self) -> bool: ...

    def is_exhausted(self) -> bool:
        """Whether no text can follow."""


class VocabularyBits:
    """The bits of a mask row that no parser decides: the end-of-sequence ids, and what lies
    beyond the vocabulary in the last word."""

    def __init__(self, *, vocab_size: int, eos_token_ids: Sequence[int]) -> None:
        self.eos_token_ids = frozenset(eos_token_ids)
        self.num_words = mask_words(vocab_size)
        self._end = _row(self.eos_token_ids, self.num_words)
        self._text = _row(set(range(vocab_size)) - self.eos_token_ids, self.num_words)

    def empty_row(self) -> MaskRow:
        return np.zeros(self.num_words, dtype=np.int32)

    def allow_only_end(self, mask_row: MaskRow) -> None:
        np.copyto(mask_row, self._end)

    def allow_end(self, mask_row: MaskRow) -> None:
        np.bitwise_or(mask_row, self._end, out=mask_row)

    def allow(self, mask_row: MaskRow, token_id: int) -> None:
        mask_row.view(np.uint32)[token_id // 32] |= np.uint32(1 << (token_id % 32))

    def keep_text(self, mask_row: MaskRow) -> None:
        np.bitwise_and(mask_row, self._text, out=mask_row)


def _row(token_ids: Iterable[int], num_words: int) -> MaskRow:
    row = np.zeros(num_words, dtype=np.uint32)
    for token_id in token_ids:
        row[token_id // 32] |= np.uint32(1 << (token_id % 32))
    return row.view(np.int32)


class EndingMatcher:
    """A Matcher (grammar.matcher) over a Parser. Owned by one thread at a time."""

    def __init__(self, parser: Parser, bits: VocabularyBits) -> None:
        self._parser = parser
        self._bits = bits
        self._num_text_tokens = 0
        self._num_end_tokens = 0

    def fill(self, mask_row: MaskRow) -> None:
        """Overwrites the row. Raises: MatcherFailed where nothing at all may follow."""
        self._check_row(mask_row)
        if self._num_end_tokens:
            self._bits.allow_only_end(mask_row)
            return
        self._parser.fill(mask_row)
        self._bits.keep_text(mask_row)
        if self._parser.is_accepting():
            self._bits.allow_end(mask_row)
        elif not mask_row.any():
            raise MatcherFailed("the grammar allows neither another token nor the end here")

    def accept(self, token_ids: Sequence[int]) -> int:
        """Longest allowed prefix; after the first end-of-sequence only more of them."""
        num_text = 0 if self._num_end_tokens else self._accept_text(token_ids)
        num_end = 0
        if self._num_end_tokens or self._parser.is_accepting():
            for token_id in token_ids[num_text:]:
                if token_id not in self._bits.eos_token_ids:
                    break
                num_end += 1
        self._num_end_tokens += num_end
        return num_text + num_end

    def rollback(self, num_tokens: int) -> None:
        """Raises: ValueError for more tokens than were accepted; the state stays as it is."""
        if not 0 <= num_tokens <= self._num_text_tokens + self._num_end_tokens:
            raise ValueError(
                f"cannot roll back {num_tokens} tokens: "
                f"{self._num_text_tokens + self._num_end_tokens} were accepted"
            )
        num_end = min(num_tokens, self._num_end_tokens)
        self._num_end_tokens -= num_end
        num_text = num_tokens - num_end
        if num_text:
            self._parser.rollback(num_text)
            self._num_text_tokens -= num_text

    def fork(self) -> "EndingMatcher":
        twin = EndingMatcher(self._parser.fork(), self._bits)
        twin._num_text_tokens = self._num_text_tokens
        twin._num_end_tokens = self._num_end_tokens
        return twin

    def forced_tokens(self) -> list[int]:
        """Text tokens only: where nothing but the end may follow the list is empty."""
        return [] if self.is_terminated() else self._parser.forced_tokens()

    def is_accepting(self) -> bool:
        return self._num_end_tokens > 0 or self._parser.is_accepting()

    def is_terminated(self) -> bool:
        return self._num_end_tokens > 0 or self._parser.is_exhausted()

    def _accept_text(self, token_ids: Sequence[int]) -> int:
        text = []
        for token_id in token_ids:
            if token_id in self._bits.eos_token_ids:
                break
            text.append(token_id)
        num_accepted = self._parser.accept(text) if text else 0
        self._num_text_tokens += num_accepted
        return num_accepted

    def _check_row(self, mask_row: MaskRow) -> None:
        if mask_row.shape != (self._bits.num_words,) or mask_row.dtype != np.int32:
            raise ValueError(f"a mask row of {self._bits.num_words} int32 words was expected")
        if not (mask_row.flags.c_contiguous and mask_row.flags.writeable):
            raise ValueError("a mask row must be contiguous and writable")
