"""Figures of the last minute in bounded memory, for the page at /ui. The event loop's thread owns
it.

TTFT, TPOT and percentiles are those of telemetry.timing and telemetry.load.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from telemetry.load import percentile

WINDOW_S = 60
# So many requests a minute are looked at; of more the latest.
MAX_SAMPLES = 2048
_NS = 1_000_000_000
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class MinuteFigures:
    """`window_s` is shorter than a minute where the server is younger. `tokens_by_second` are the
    generated tokens of each second before this one, oldest first. Latencies are of requests whose
    first, or last, token came within the window; None where there was none."""

    window_s: float
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    tpot_p50_s: float | None
    tpot_p95_s: float | None
    output_tok_s: float
    tokens_by_second: Sequence[int]
    prompt_tokens: int
    cached_tokens: int
    num_requests: int

    @property
    def hit_rate(self) -> float | None:
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None


class MinuteWindow:
    """All times are nanoseconds of one clock."""

    def __init__(self, start_ns: int) -> None:
        self._start_ns = start_ns
        # A ring of seconds; a slot is of the second that it names, or of one that is over.
        self._seconds = [-1] * (WINDOW_S + 1)
        self._tokens = [0] * (WINDOW_S + 1)
        self._ttft: deque[tuple[int, float]] = deque(maxlen=MAX_SAMPLES)
        self._tpot: deque[tuple[int, float]] = deque(maxlen=MAX_SAMPLES)
        self._prompts: deque[tuple[int, tuple[int, int]]] = deque(maxlen=MAX_SAMPLES)

    def count_tokens(self, num_tokens: int, at_ns: int) -> None:
        second = at_ns // _NS
        slot = second % (WINDOW_S + 1)
        if self._seconds[slot] != second:
            self._seconds[slot] = second
            self._tokens[slot] = 0
        self._tokens[slot] += num_tokens

    def add_ttft(self, seconds: float, at_ns: int) -> None:
        self._ttft.append((at_ns, seconds))

    def add_tpot(self, seconds: float, at_ns: int) -> None:
        self._tpot.append((at_ns, seconds))

    def add_prompt(self, num_tokens: int, num_cached: int, at_ns: int) -> None:
        self._prompts.append((at_ns, (num_tokens, num_cached)))

    def figures(self, now_ns: int) -> MinuteFigures:
        since_ns = now_ns - WINDOW_S * _NS
        ttft = _recent(self._ttft, since_ns)
        tpot = _recent(self._tpot, since_ns)
        prompts = _recent(self._prompts, since_ns)
        by_second = self._tokens_by_second(now_ns // _NS)
        # Of the second that has just begun nothing is told: its count would be of a part.
        age_s = (now_ns // _NS) - (self._start_ns // _NS)
        return MinuteFigures(
            window_s=min(WINDOW_S, max(0.0, (now_ns - self._start_ns) / _NS)),
            ttft_p50_s=percentile(ttft, 0.5),
            ttft_p95_s=percentile(ttft, 0.95),
            tpot_p50_s=percentile(tpot, 0.5),
            tpot_p95_s=percentile(tpot, 0.95),
            output_tok_s=sum(by_second) / min(WINDOW_S, max(1, age_s)),
            tokens_by_second=by_second,
            prompt_tokens=sum(num_tokens for num_tokens, _ in prompts),
            cached_tokens=sum(num_cached for _, num_cached in prompts),
            num_requests=len(prompts),
        )

    def _tokens_by_second(self, now_s: int) -> list[int]:
        counts = []
        for second in range(now_s - WINDOW_S, now_s):
            slot = second % (WINDOW_S + 1)
            counts.append(self._tokens[slot] if self._seconds[slot] == second else 0)
        return counts


def _recent(samples: Iterable[tuple[int, _T]], since_ns: int) -> list[_T]:
    return [value for at_ns, value in samples if at_ns > since_ns]
