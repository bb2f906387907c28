"""Which tokens a client allows and which sequences of tokens it forbids: made once a request, asked
in every step by the rules, the planner and jump-forward. And how tokens are taken out of a mask.
"""

from collections.abc import Collection, Iterable, Sequence

import numpy as np

from grammar.matcher import MaskRow

_WORD_BITS = 32


def exclude_tokens(mask_row: MaskRow, token_ids: Collection[int]) -> None:
    """Takes them out of the mask."""
    if token_ids:
        ids = np.fromiter(token_ids, dtype=np.uint32, count=len(token_ids))
        bits = np.uint32(1) << ids % _WORD_BITS
        np.bitwise_and.at(mask_row.view(np.uint32), ids // _WORD_BITS, ~bits)


class AllowedTokens:
    """A set of token ids that can be cut out of a mask."""

    def __init__(self, token_ids: Iterable[int]) -> None:
        self._token_ids = frozenset(token_ids)
        num_bits = max(self._token_ids) + 1
        bits = np.zeros(-(-num_bits // _WORD_BITS) * _WORD_BITS, dtype=np.uint8)
        bits[list(self._token_ids)] = 1
        # Words of a mask, up to the last one that has a token.
        self._words = np.packbits(bits, bitorder="little").view(np.int32)

    def __contains__(self, token_id: int) -> bool:
        return token_id in self._token_ids

    def restrict(self, mask_row: MaskRow) -> None:
        """Takes all other tokens out of the mask."""
        num_words = len(self._words)
        mask_row[:num_words] &= self._words
        mask_row[num_words:] = 0


class BadWords:
    """Sequences of tokens, none of them empty, of which none may be completed."""

    def __init__(self, words: Iterable[Sequence[int]]) -> None:
        last_ids: dict[tuple[int, ...], set[int]] = {}
        for word in words:
            last_ids.setdefault(tuple(word[:-1]), set()).add(word[-1])
        self._always = tuple(sorted(last_ids.pop((), ())))
        # What may not follow, by what it would follow.
        self._last_ids = last_ids
        self._lens = sorted({len(rest) for rest in last_ids})

    def completing(self, token_ids: Sequence[int], start: int) -> tuple[int, ...]:
        """The tokens, in order, that would complete one behind `token_ids`, of which those before
        `start` do not count."""
        found: set[int] = set()
        num_tokens = len(token_ids)
        for length in self._lens:
            if length > num_tokens - start:
                break
            found.update(self._last_ids.get(tuple(token_ids[num_tokens - length :]), ()))
        return tuple(sorted(found.union(self._always))) if found else self._always
