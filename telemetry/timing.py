"""The one definition of TTFT, ITL and TPOT, of which the metrics are made.

TTFT  seconds from the request's start to the arrival of its first token, of any choice.
ITL   seconds between tokens of one choice: a delta of k tokens after a gap g counts k gaps of g/k.
TPOT  seconds from the first to the last token of a request over its tokens after the first; of
      several choices the sum of these times over the sum of these tokens.

Deltas without tokens (text held back, role chunks) are not arrivals. Times are nanoseconds of
whatever clock the caller uses for all of them.
"""

from typing import NamedTuple

from telemetry.duration_sketch import DurationSketch

_NS = 1e9


class InterToken(NamedTuple):
    """One delta's share of the inter-token latency: `num_tokens` gaps of `seconds` each."""

    seconds: float
    num_tokens: int


class StreamTimer:
    """Arrivals of one request's tokens. `gaps` gets the ITL of all of them, where it is given.
    One thread uses it."""

    def __init__(self, start_ns: int, *, gaps: DurationSketch | None = None) -> None:
        self.start_ns = start_ns
        self.first_token_ns: int | None = None
        self.gaps = gaps
        self._begun_ns: dict[int, int] = {}
        self._last_ns: dict[int, int] = {}
        self._num_tokens = 0
        self._has_gaps = False

    def observe(self, num_tokens: int, at_ns: int, *, choice: int = 0) -> InterToken | None:
        """Records a delta. None for the first delta of a choice and for one without tokens."""
        if num_tokens <= 0:
            return None
        if self.first_token_ns is None:
            self.first_token_ns = at_ns
        self._num_tokens += num_tokens
        last_ns = self._last_ns.get(choice)
        if last_ns is None:
            self._begun_ns[choice] = self._last_ns[choice] = at_ns
            return None
        self._has_gaps = True
        if self.gaps is not None:
            self.gaps.add((at_ns - last_ns) // num_tokens, num_tokens)
        if at_ns <= last_ns:  # the clock was set back
            return InterToken(0.0, num_tokens)
        self._last_ns[choice] = at_ns
        return InterToken((at_ns - last_ns) / num_tokens / _NS, num_tokens)

    @property
    def ttft_s(self) -> float | None:
        if self.first_token_ns is None:
            return None
        return max(0, self.first_token_ns - self.start_ns) / _NS

    @property
    def tpot_s(self) -> float | None:
        """None where nothing came after the first delta of any choice: there is no time then."""
        if not self._has_gaps:
            return None
        total_ns = sum(self._last_ns[choice] - begun for choice, begun in self._begun_ns.items())
        return total_ns / (self._num_tokens - len(self._begun_ns)) / _NS
