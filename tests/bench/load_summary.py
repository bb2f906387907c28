"""What is said of a load in the tables of these programs, from the timings of its requests."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from telemetry.load import RequestTiming, percentile

_MS = 1e3


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


def goodput(timings: Sequence[RequestTiming], limits: Limits, *, wall_s: float) -> float:
    """Requests a second that kept both limits."""
    return sum(_is_good(timing, limits) for timing in timings) / wall_s


def _is_good(timing: RequestTiming, limits: Limits) -> bool:
    return timing.ttft_s <= limits.max_ttft_s and (timing.tpot_s or 0.0) <= limits.max_tpot_s


def _in_ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * _MS
