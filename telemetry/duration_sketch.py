"""Quantiles of many durations in little memory: a histogram whose buckets are 3 % wide.

The runtime notes the gaps between a choice's tokens in one, the gateway those of a request's.
"""

import math

# Buckets for each doubling: a value is told with an error of 1 / 64 at most, half a bucket.
_LOG2_BUCKETS = 5
_NUM_BUCKETS = 1 << _LOG2_BUCKETS


class DurationSketch:
    """Nanoseconds. Memory grows with the number of different magnitudes only: some hundred numbers
    from a microsecond to an hour. One thread uses it."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    @property
    def count(self) -> int:
        """How many were noted."""
        return sum(self._counts.values())

    def add(self, duration_ns: int, count: int = 1) -> None:
        """Notes a duration so many times; one below zero, of a clock that was set back, is zero."""
        bucket = duration_ns if duration_ns > 0 else 0
        shift = bucket.bit_length() - _LOG2_BUCKETS - 1
        if shift > 0:  # below 2 * _NUM_BUCKETS each value has a bucket of its own
            bucket = (shift << _LOG2_BUCKETS) + (bucket >> shift)
        counts = self._counts
        counts[bucket] = counts.get(bucket, 0) + count

    def quantile_ms(self, share: float) -> float | None:
        """Milliseconds, by nearest rank as telemetry.load; None where nothing was noted."""
        left = max(1, math.ceil(share * self.count))
        for bucket in sorted(self._counts):
            left -= self._counts[bucket]
            if left <= 0:
                return _middle_ns(bucket) / 1e6
        return None


def _middle_ns(bucket: int) -> float:
    if bucket < 2 * _NUM_BUCKETS:
        return float(bucket)
    shift = (bucket >> _LOG2_BUCKETS) - 1
    start = (bucket - (shift << _LOG2_BUCKETS)) << shift
    return start + ((1 << shift) - 1) / 2
