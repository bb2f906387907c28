"""Whether a request counts as served well: what goodput is made of, for the gateway's metric.

A request that failed, or that the server had no room for, is `failed`. One whose first token came
later than the limit is `slow_ttft`, whatever its other times; `slow_tpot` is one whose tokens came
too slowly. Without limits every answer is good. What is not the server's doing is not counted:
requests that were refused for what they are, and those whose client left. A client that left
when a limit was missed already, or still waited for a first token that was overdue, is counted as
what it had to suffer.
"""

from dataclasses import dataclass
from typing import Literal

Result = Literal["good", "slow_ttft", "slow_tpot", "failed"]


@dataclass(frozen=True, slots=True)
class Slo:
    """Limits that a good request keeps; None = any."""

    ttft_s: float | None = None
    tpot_s: float | None = None

    @classmethod
    def of_ms(cls, *, ttft_ms: float, tpot_ms: float) -> "Slo":
        """From settings, where 0 is any."""
        return cls(ttft_ms / 1e3 if ttft_ms else None, tpot_ms / 1e3 if tpot_ms else None)


NO_LIMITS = Slo()


@dataclass(frozen=True, slots=True)
class Ended:
    """How a request ended. `ttft_s` and `tpot_s` are None where they were never known, `life_s` is
    all the time that it took."""

    outcome: Literal["ok", "aborted", "error", "rejected"]
    status: int
    life_s: float
    ttft_s: float | None = None
    tpot_s: float | None = None


def judge(ended: Ended, slo: Slo) -> Result | None:
    """None for a request that does not count."""
    is_failure = ended.outcome == "error" or (ended.outcome == "rejected" and ended.status >= 500)
    if is_failure:
        return "failed"
    if ended.outcome == "rejected":
        return None
    is_aborted = ended.outcome == "aborted"
    waited_s = ended.life_s if ended.ttft_s is None and is_aborted else ended.ttft_s
    if _is_over(waited_s, slo.ttft_s):
        return "slow_ttft"
    if _is_over(ended.tpot_s, slo.tpot_s):
        return "slow_tpot"
    return None if is_aborted else "good"


def _is_over(value_s: float | None, limit_s: float | None) -> bool:
    return value_s is not None and limit_s is not None and value_s > limit_s
