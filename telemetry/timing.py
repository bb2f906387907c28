"""The one definition of TTFT, ITL and TPOT; server and load generator both use it.

TTFT  seconds from the request's start to the arrival of its first token, of any choice.
ITL   seconds between tokens of one choice: a delta of k tokens after a gap g counts k gaps of g/k.
TPOT  (last token - first token) / (tokens - 1) of one choice; undefined below two tokens.

Deltas without tokens (text held back, role chunks) are not arrivals. Times are nanoseconds of
whatever clock the caller uses for all of them.
"""

from dataclasses import dataclass

_NS = 1e9


@dataclass(slots=True)
class _Arrivals:
    first_ns: int
    last_ns: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class InterToken:
    """One delta's share of the inter-token latency: `num_tokens` gaps of `seconds` each."""

    seconds: float
    num_tokens: int


class StreamTimer:
    """Arrivals of one request's tokens. One thread uses it."""

    def __init__(self, start_ns: int) -> None:
        self.start_ns = start_ns
        self.first_token_ns: int | None = None
        self._choices: dict[int, _Arrivals] = {}

    def observe(self, num_tokens: int, at_ns: int, *, choice: int = 0) -> InterToken | None:
        """Records a delta. None for the first delta of a choice and for one without tokens."""
        if num_tokens <= 0:
            return None
        if self.first_token_ns is None:
            self.first_token_ns = at_ns
        arrivals = self._choices.get(choice)
        if arrivals is None:
            self._choices[choice] = _Arrivals(at_ns, at_ns, num_tokens)
            return None
        gap_ns = max(0, at_ns - arrivals.last_ns)
        arrivals.last_ns = max(arrivals.last_ns, at_ns)
        arrivals.num_tokens += num_tokens
        return InterToken(gap_ns / num_tokens / _NS, num_tokens)

    @property
    def ttft_s(self) -> float | None:
        if self.first_token_ns is None:
            return None
        return max(0, self.first_token_ns - self.start_ns) / _NS

    def tpot_s(self, choice: int = 0) -> float | None:
        arrivals = self._choices.get(choice)
        if arrivals is None or arrivals.num_tokens < 2:
            return None
        return (arrivals.last_ns - arrivals.first_ns) / (arrivals.num_tokens - 1) / _NS
