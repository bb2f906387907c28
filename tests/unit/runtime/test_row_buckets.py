"""Numbers that rows are padded to."""

import pytest

from runtime.row_buckets import ROW_BUCKETS, round_up_to_bucket


@pytest.mark.parametrize(("rows", "bucket"), [(1, 1), (3, 4), (16, 16), (17, 32), (255, 256)])
def test_rows_are_rounded_up_to_the_next_bucket(rows: int, bucket: int) -> None:
    assert round_up_to_bucket(rows) == bucket


def test_beyond_the_largest_bucket_its_multiples_are_used() -> None:
    assert round_up_to_bucket(ROW_BUCKETS[-1] + 1) == 2 * ROW_BUCKETS[-1]
