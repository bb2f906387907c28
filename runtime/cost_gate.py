"""Whether pages are worth fetching from a tier: only where that is cheaper than computing them.

    bytes / bandwidth + latency < tokens / prefill rate, all of it measured

The tier threads measure, the engine's loop only reads.
"""

import time
from collections.abc import Callable

# The part of an estimate that a new measurement replaces.
WEIGHT = 0.3
# What is believed before the first measurement: next to nothing, so that there will be one.
FIRST_LOOKUP_NS = 50_000.0
# A tier that was found too slow is measured again after so long, while nobody waits for it.
STALE_NS = 10_000_000_000


class CostGate:
    """What a lookup and a transfer cost in one tier."""

    def __init__(self, clock_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock_ns = clock_ns
        self._lookup_ns: float | None = None
        self._byte_ns: float | None = None
        self._measured_ns = clock_ns()

    @property
    def lookup_ns(self) -> float:
        return FIRST_LOOKUP_NS if self._lookup_ns is None else self._lookup_ns

    def transfer_ns(self, num_bytes: int) -> float:
        """Of one fetch, its latency included."""
        return self.lookup_ns + (self._byte_ns or 0.0) * num_bytes

    def is_stale(self) -> bool:
        """Whether nothing was measured for long."""
        return self._clock_ns() - self._measured_ns > STALE_NS

    def observe_lookup(self, elapsed_ns: int) -> None:
        self._lookup_ns = _mix(self._lookup_ns, elapsed_ns)
        self._measured_ns = self._clock_ns()

    def observe_transfer(self, num_bytes: int, elapsed_ns: int) -> None:
        """What goes beyond the latency is for the bytes. Nothing came: nothing was learned."""
        if num_bytes:
            self._byte_ns = _mix(self._byte_ns, max(0.0, elapsed_ns - self.lookup_ns) / num_bytes)
            self._measured_ns = self._clock_ns()


def _mix(old: float | None, new: float) -> float:
    return new if old is None else old + WEIGHT * (new - old)
