"""What is said of a streamed request, as a client saw it, and percentiles: definitions, no I/O.

TTFT and ITL are those of telemetry.timing. A client sees text: a delta counts as many tokens as
the server tells ids with it, and one where it tells none. TPOT is a request's time from its first
to its last token over the number of tokens after the first.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from telemetry.timing import StreamTimer

_NS = 1e9


@dataclass(frozen=True, slots=True)
class RequestTiming:
    """One answered request. `itl_s` has an entry for each token of the deltas
    after the first."""

    ttft_s: float
    stream_s: float
    itl_s: tuple[float, ...]
    output_tokens: int

    @property
    def tpot_s(self) -> float | None:
        """None for an answer of one token."""
        return self.stream_s / (self.output_tokens - 1) if self.output_tokens > 1 else None


def time_stream(
    *, start_ns: int, arrivals: Sequence[tuple[int, int]], output_tokens: int
) -> RequestTiming | None:
    """The timing of one choice's deltas with text, each with its time in ns and its number of
    tokens; None where none arrived."""
    timer = StreamTimer(start_ns)
    gaps = [timer.observe(num_tokens, at_ns) for at_ns, num_tokens in arrivals]
    if timer.ttft_s is None:
        return None
    return RequestTiming(
        ttft_s=timer.ttft_s,
        stream_s=max(0, arrivals[-1][0] - arrivals[0][0]) / _NS,
        itl_s=tuple(
            seconds for gap in gaps if gap is not None for seconds in [gap.seconds] * gap.num_tokens
        ),
        output_tokens=output_tokens,
    )


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least `share` of the values do not exceed (nearest rank): with
    few values the largest, never one that was not measured. None without values."""
    if not values:
        return None
    return nearest_rank(sorted(values), share)


def nearest_rank(ordered: Sequence[float], share: float) -> float:
    """`percentile` of values that are in order already, of which there is one at least."""
    rank = math.ceil(share * len(ordered))
    return ordered[max(rank, 1) - 1]
