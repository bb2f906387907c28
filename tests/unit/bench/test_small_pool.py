"""A pool is judged by its own best."""

import pytest

from tests.bench.small_pool import PoolRow, shares_of_best


def row(pool_mib: int, num_clients: int, output_tok_s: float) -> PoolRow:
    return PoolRow(pool_mib, num_clients, 0, output_tok_s, 0.0, None, 0)


def test_the_share_is_that_of_the_most_clients_in_the_same_pool() -> None:
    rows = [row(512, 4, 100.0), row(512, 16, 400.0), row(48, 16, 90.0), row(48, 4, 120.0)]
    assert shares_of_best(rows) == {512: 1.0, 48: pytest.approx(0.75)}
