"""Numbers of rows that a step is padded to, where each new shape costs a compilation."""

from bisect import bisect_left

ROW_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def round_up_to_bucket(num_rows: int) -> int:
    """The next bucket; above the largest the next multiple of it."""
    largest = ROW_BUCKETS[-1]
    if num_rows > largest:
        return -(-num_rows // largest) * largest
    return ROW_BUCKETS[bisect_left(ROW_BUCKETS, num_rows)]
