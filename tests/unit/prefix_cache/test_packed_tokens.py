"""Tokens as bytes: order, differences, and no more packed than is asked for."""

import random
from itertools import product

import pytest

from prefix_cache.packed_tokens import TokenQuery, common_bytes, pack, unpack
from tests.unit.prefix_cache.counting import CountingSequence


def test_packing_is_big_endian_and_can_be_undone() -> None:
    assert pack([1, 258]) == b"\0\0\0\1\0\0\1\2"
    assert unpack(pack([0, 7, 2**32 - 1])) == [0, 7, 2**32 - 1]
    assert pack([]) == b""


def test_packed_tokens_sort_as_tokens_do() -> None:
    rows = [list(row) for length in range(4) for row in product([0, 1, 255, 256], repeat=length)]
    random.Random(1).shuffle(rows)
    assert sorted(map(pack, rows)) == [pack(row) for row in sorted(rows)]


@pytest.mark.parametrize("token_id", [-1, 2**32])
def test_an_id_that_does_not_fit_is_an_error_and_no_other_token(token_id: int) -> None:
    with pytest.raises(OverflowError):
        pack([token_id])


@pytest.mark.parametrize("num_tokens", [1, 3, 16, 255, 256, 257, 1000, 5000])
def test_the_first_difference_is_found_wherever_it_is(num_tokens: int) -> None:
    left = [3] * num_tokens
    for place in {0, 1, num_tokens // 2, num_tokens - 2, num_tokens - 1} & set(range(num_tokens)):
        for other in (2, 259, 3 + 2**31):
            right = [*left[:place], other, *left[place + 1 :]]
            assert common_bytes(pack(left), pack(right)) == 4 * place


def test_what_is_equal_is_as_long_as_the_shorter() -> None:
    assert common_bytes(pack([1, 2]), pack([1, 2, 3])) == 8
    assert common_bytes(b"", pack([1])) == 0


def test_a_page_is_short_at_the_end_of_a_query_only() -> None:
    query = TokenQuery(list(range(1000)), 600)
    for start in range(0, 1200, 4):
        expected = list(range(start // 4, min(start // 4 + 4, 600)))
        assert unpack(query.page_at(start, 16)) == expected
    assert query.page_at(2400, 16) == b""


@pytest.mark.parametrize("num_equal", [0, 5, 255, 256, 700, 1999, 2000])
def test_an_edge_is_compared_from_any_place_of_the_query(num_equal: int) -> None:
    tokens = [1] * 10 + [7] * num_equal + [8] * (2000 - num_equal)
    edge = pack([7] * 2000) + b"page ids"
    assert TokenQuery(tokens, 2010).num_equal_bytes(40, edge, 8000) == 4 * num_equal


def test_a_query_ends_where_its_caller_says() -> None:
    edge = pack([7] * 2000)
    assert TokenQuery([7] * 2000, 900).num_equal_bytes(0, edge, 8000) == 3600
    assert TokenQuery([7] * 20, 900).num_equal_bytes(0, edge, 8000) == 80
    assert TokenQuery([7] * 20, -1).page_at(0, 16) == b""


def test_a_long_query_is_packed_from_the_front_in_growing_pieces() -> None:
    tokens = CountingSequence([7] * 100_000)
    query = TokenQuery(tokens, 100_000)
    assert tokens.num_read == 256
    query.num_equal_bytes(0, pack([7] * 1000), 4000)
    assert tokens.num_read == 1024
    query.page_at(4 * 1020, 64)
    assert tokens.num_read == 2048
