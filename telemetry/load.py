"""What is said of a load of streamed requests, as a client saw it: definitions only, no I/O.

TTFT and ITL are those of telemetry.timing. A client sees text: a delta counts as many tokens as
the server tells ids with it, and one where it tells none. TPOT is a request's time from its first
to its last token over the number of tokens after the first. Goodput counts only requests that kept
both limits.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from telemetry.timing import StreamTimer

_NS = 1e9
_MS = 1e3


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


@dataclass(frozen=True, slots=True)
class LoadSummary:
    """A load's figures; None where no request has what the figure is made of."""

    output_tok_s: float
    ttft_p50_ms: float | None
    ttft_p95_ms: float | None
    ttft_p99_ms: float | None
    tpot_p50_ms: float | None
    tpot_p95_ms: float | None
    tpot_p99_ms: float | None
    itl_p99_ms: float | None


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request must keep to count as good."""

    max_ttft_s: float
    max_tpot_s: float


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


def summarize(timings: Sequence[RequestTiming], *, wall_s: float) -> LoadSummary:
    """Of all answered requests of a load that took `wall_s`."""
    ttft = [timing.ttft_s for timing in timings]
    tpot = [timing.tpot_s for timing in timings if timing.tpot_s is not None]
    itl = [gap for timing in timings for gap in timing.itl_s]
    return LoadSummary(
        output_tok_s=sum(timing.output_tokens for timing in timings) / wall_s,
        ttft_p50_ms=_in_ms(statistics.median(ttft) if ttft else None),
        ttft_p95_ms=_in_ms(percentile(ttft, 0.95)),
        ttft_p99_ms=_in_ms(percentile(ttft, 0.99)),
        tpot_p50_ms=_in_ms(statistics.median(tpot) if tpot else None),
        tpot_p95_ms=_in_ms(percentile(tpot, 0.95)),
        tpot_p99_ms=_in_ms(percentile(tpot, 0.99)),
        itl_p99_ms=_in_ms(percentile(itl, 0.99)),
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


def goodput(timings: Sequence[RequestTiming], limits: Limits, *, wall_s: float) -> float:
    """Requests a second that kept both limits."""
    return sum(_is_good(timing, limits) for timing in timings) / wall_s


def _is_good(timing: RequestTiming, limits: Limits) -> bool:
    return timing.ttft_s <= limits.max_ttft_s and (timing.tpot_s or 0.0) <= limits.max_tpot_s


def _in_ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * _MS
