"""Allowed tokens and bad words, as they are asked in every step."""

import random

import numpy as np
import pytest

from grammar.matcher import MaskRow, mask_words
from runtime.token_limits import AllowedTokens, BadWords, exclude_tokens

VOCAB_SIZE = 100


def mask_of(*token_ids: int) -> MaskRow:
    bits = np.zeros(32 * mask_words(VOCAB_SIZE), dtype=np.uint8)
    bits[list(token_ids)] = 1
    return np.packbits(bits, bitorder="little").view(np.int32)


def tokens_of(mask_row: MaskRow) -> list[int]:
    return np.flatnonzero(np.unpackbits(mask_row.view(np.uint8), bitorder="little")).tolist()


@pytest.mark.parametrize("allowed", [[0], [31], [32], [99, 3, 3], [31, 63, 95], range(VOCAB_SIZE)])
def test_of_a_mask_the_allowed_tokens_are_left(allowed: list[int]) -> None:
    everything, some = mask_of(*range(VOCAB_SIZE)), mask_of(3, 31, 40, 95, 99)
    tokens = AllowedTokens(allowed)
    tokens.restrict(everything)
    tokens.restrict(some)
    assert tokens_of(everything) == sorted(set(allowed))
    assert tokens_of(some) == sorted({3, 31, 40, 95, 99} & set(allowed))
    assert [one for one in range(VOCAB_SIZE) if one in tokens] == sorted(set(allowed))


def test_tokens_are_taken_out_of_a_mask_once_or_twice() -> None:
    mask_row = mask_of(0, 31, 32, 63, 99)
    exclude_tokens(mask_row, (31, 99, 31, 5, 32))
    assert tokens_of(mask_row) == [0, 63]
    exclude_tokens(mask_row, ())
    assert tokens_of(mask_row) == [0, 63]


def test_a_single_token_is_forbidden_always_and_a_last_one_behind_the_others() -> None:
    words = BadWords([(5,), (1, 2, 9), (2, 8), (2, 3)])
    assert words.completing([], 0) == (5,)
    assert words.completing([7, 2], 0) == (3, 5, 8)
    assert words.completing([7, 1, 2], 0) == (3, 5, 8, 9)
    assert words.completing([1, 2, 7], 0) == (5,)


def test_what_lies_before_the_answer_does_not_count() -> None:
    words = BadWords([(1, 2, 9), (2, 8)])
    assert words.completing([1, 2], 0) == (8, 9)
    assert words.completing([1, 2], 1) == (8,)
    assert words.completing([1, 2], 2) == ()


def test_a_word_that_is_the_beginning_of_another_does_not_hide_it() -> None:
    words = BadWords([(1, 1), (1, 1, 1, 4), (1, 1, 3)])
    assert words.completing([1, 1, 1], 0) == (1, 3, 4)


def test_any_words_are_never_completed() -> None:
    """Against a search of the whole answer."""
    rng = random.Random(3)
    for _ in range(200):
        words = [
            tuple(rng.choices(range(4), k=rng.randint(1, 4))) for _ in range(rng.randint(1, 6))
        ]
        bad_words, start = BadWords(words), rng.randint(0, 3)
        token_ids = rng.choices(range(4), k=rng.randint(start, 12))
        answer = "".join(map(str, token_ids[start:]))
        expected = [
            last
            for last in range(4)
            if any(f"{answer}{last}".endswith("".join(map(str, word))) for word in words)
        ]
        assert list(bad_words.completing(token_ids, start)) == expected
