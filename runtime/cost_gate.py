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
    """What a lookup and a transfer cost in one tier. A transfer of less than `full_bytes` tells
    less of what bytes cost: a page that was slow to come must not keep the next hundred away."""

    def __init__(
        self, clock_ns: Callable[[], int] = time.perf_counter_ns, *, full_bytes: int = 1
    ) -> None:
        self._clock_ns = clock_ns
        self._full_bytes = full_bytes
        self._num_seen_bytes = 0
        self._lookup_ns: float | None = None
        self._byte_ns = 0.0
        self._measured_ns = clock_ns()

    @property
    def lookup_ns(self) -> float:
        return FIRST_LOOKUP_NS if self._lookup_ns is None else self._lookup_ns

    def transfer_ns(self, num_bytes: int) -> float:
        """Of one fetch, its latency included."""
        return self.lookup_ns + self._byte_ns * num_bytes

    def is_stale(self) -> bool:
        """Whether nothing was measured for long."""
        return self._clock_ns() - self._measured_ns > STALE_NS

    def observe_lookup(self, elapsed_ns: int) -> None:
        old = self._lookup_ns
        self._lookup_ns = elapsed_ns if old is None else old + WEIGHT * (elapsed_ns - old)
        self._measured_ns = self._clock_ns()

    def observe_transfer(self, num_bytes: int, elapsed_ns: int) -> None:
        """What goes beyond the latency is for the bytes. Nothing came: nothing was learned."""
        if not num_bytes:
            return
        is_first = self._num_seen_bytes < self._full_bytes
        weight = (1.0 if is_first else WEIGHT) * min(1.0, num_bytes / self._full_bytes)
        byte_ns = max(0.0, elapsed_ns - self.lookup_ns) / num_bytes
        self._byte_ns += weight * (byte_ns - self._byte_ns)
        self._num_seen_bytes += num_bytes
        self._measured_ns = self._clock_ns()
