"""How much prefill a step may carry beside its decode rows, learned from the steps it measured.

Owns the estimates of what decode rows and prefill tokens cost on this machine; knows no sequence
and no page. The scheduler asks before each step and reports how long it took.
"""

import math
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from itertools import islice
from statistics import median
from typing import Self

from runtime.batch import RowKey, ScheduledBatch

# Few prompts beside many decode rows: prefill may take as long as the rows, so that a step takes
# twice what it takes without. Many prompts beside few rows get more, up to MAX_SHARE. Simulated,
# 16 clients with prompts of 1,400 tokens and answers of 128 (CPU-like costs, see
# tests/integration/test_engine_step_time.py): 91 % of the tokens a second that no bound gives,
# with a p99 between tokens of 0.4 times as much. MIN_SHARE alone would give 62 %.
MIN_SHARE = 1.0
SHARE_PER_PROMPT = 4.0
MAX_SHARE = 8.0

# Beside other tenants' rows, the prompt of one that has much less running (see FairTurns) gets so
# many times what these take: its first token is to come in less than twice the time it takes alone.
FAVOURED_SHARE = 4.0

# Less than a page at a time would cost more in overhead than it spares the decode rows.
MIN_PREFILL_TOKENS = 16

# A step of decode rows alone is taken when none was for so long, or when there are so many more
# rows than were measured.
MAX_STEPS_UNMEASURED = 32
MIN_STEPS_BETWEEN_PROBES = 4
MAX_ROWS_UNMEASURED = 1.25

# An estimate of decode is the median of the nearest few of the latest steps: a few that another
# process delayed do not show. One of prefill forgets a tenth at each step.
NUM_DECODE_SAMPLES = 16
NUM_NEAREST = 5
DECAY = 0.9


@dataclass(frozen=True, slots=True)
class StepShape:
    """What a step computes. `prefill_context` sums, over its prefill tokens, how many tokens
    each attends to. A row of one token counts as decode, whatever it is for, and so does one
    of a few that a grammar forced: what those cost is in what decode rows cost of late."""

    num_decode_rows: int
    num_prefill_tokens: int
    prefill_context: float

    @classmethod
    def of(cls, batch: ScheduledBatch, *, decoding: Collection[RowKey] = ()) -> Self:
        """`decoding` are the rows that are decode whatever their length."""
        chunks = [
            (row.start, len(row.token_ids))
            for row in batch.rows
            if len(row.token_ids) > 1 and row.key not in decoding
        ]
        return cls(
            num_decode_rows=len(batch.rows) - len(chunks),
            num_prefill_tokens=sum(num_tokens for _, num_tokens in chunks),
            prefill_context=sum(num * (start + num / 2) for start, num in chunks),
        )


class DecodeCost:
    """The time of a step that has decode rows only, by their number."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int]] = deque(maxlen=NUM_DECODE_SAMPLES)

    def observe(self, num_rows: int, elapsed_ns: int) -> None:
        self._samples.appendleft((num_rows, elapsed_ns))

    def covers(self, num_rows: int) -> bool:
        """Whether steps of nearly so many rows were measured."""
        most = max((rows for rows, _ in self._samples), default=0)
        return num_rows <= most * MAX_ROWS_UNMEASURED

    def estimate_ns(self, num_rows: int) -> float:
        """Rather too little: more rows never take less time, fewer not less than their part.
        0 before the first measurement."""
        by_distance = sorted(self._samples, key=lambda sample: abs(sample[0] - num_rows))
        bounds = [ns * min(1.0, num_rows / rows) for rows, ns in islice(by_distance, NUM_NEAREST)]
        return median(bounds) if bounds else 0.0


@dataclass(frozen=True, slots=True)
class PrefillEstimate:
    """What a prefill token takes: one part for itself, one for each token before it."""

    own_ns: float
    context_ns: float

    def elapsed_ns(self, *, start: int, num_tokens: int) -> float:
        """Of computing [start, start + num_tokens)."""
        return num_tokens * (self.own_ns + self.context_ns * (start + num_tokens / 2))


class PrefillCost:
    """The time that a prefill token adds: one part for itself, one for each token before it.

    Least squares over both parts. Every step is weighted by one over the square of its time, so
    that a step of a few tokens says little, and one that was held up even less.
    """

    def __init__(self) -> None:
        self._tt = self._tc = self._cc = self._ty = self._cy = 0.0

    def observe(self, shape: StepShape, *, added_ns: float, elapsed_ns: int) -> None:
        tokens, context = shape.num_prefill_tokens / elapsed_ns, shape.prefill_context / elapsed_ns
        added = max(0.0, added_ns) / elapsed_ns
        self._tt = self._tt * DECAY + tokens * tokens
        self._tc = self._tc * DECAY + tokens * context
        self._cc = self._cc * DECAY + context * context
        self._ty = self._ty * DECAY + tokens * added
        self._cy = self._cy * DECAY + context * added

    def token_ns(self, context: float) -> float:
        """What a token adds that attends to `context` tokens; 0 before the first measurement."""
        own_ns, context_ns = self._solve()
        return own_ns + context_ns * context

    def estimate(self) -> PrefillEstimate | None:
        """None before the first measurement."""
        return PrefillEstimate(*self._solve()) if self._tt else None

    def _solve(self) -> tuple[float, float]:
        """The two parts, neither below 0."""
        determinant = self._tt * self._cc - self._tc * self._tc
        if determinant <= 1e-6 * self._tt * self._cc:
            return (self._ty / self._tt if self._tt else 0.0), 0.0
        own_ns = (self._ty * self._cc - self._cy * self._tc) / determinant
        context_ns = (self._cy * self._tt - self._ty * self._tc) / determinant
        if context_ns < 0.0:
            return self._ty / self._tt, 0.0
        if own_ns < 0.0:
            return 0.0, self._cy / self._cc
        return own_ns, context_ns


class PrefillAllowance:
    """What one step may still spend on prefill. The first chunk has at least `min_tokens`.

    Favoured prompts may spend `favoured_ns` beyond what all may. Beside one no other is computed:
    the step would take longer for it.
    """

    def __init__(
        self,
        *,
        left_ns: float,
        max_tokens: int,
        min_tokens: int,
        cost: PrefillCost,
        favoured_ns: float = 0.0,
    ) -> None:
        self._left_ns = left_ns
        self._favoured_ns = favoured_ns
        self._max_tokens = max_tokens
        self._min_tokens = min_tokens
        self._cost = cost
        self._is_for_favoured = False

    def num_tokens(self, context: int, *, is_favoured: bool = False) -> int:
        """How long a chunk may be that starts behind `context` tokens."""
        if self._is_for_favoured and not is_favoured:
            return 0
        left_ns = self._left_ns + (self._favoured_ns if is_favoured else 0.0)
        token_ns = self._cost.token_ns(context)
        affordable = left_ns / token_ns if token_ns > 0.0 else math.inf
        return max(0, int(min(self._max_tokens, max(affordable, self._min_tokens))))

    def spend(self, num_tokens: int, context: int, *, is_favoured: bool = False) -> None:
        """A chunk was placed."""
        self._left_ns -= num_tokens * self._cost.token_ns(context)
        self._max_tokens -= num_tokens
        self._min_tokens = 0
        self._is_for_favoured |= is_favoured and num_tokens > 0


class StepBudget:
    """Bounds prefill beside decode rows to a multiple of what the rows take alone.

    The multiple follows from how many prompts there are for how many rows. Until a chunk of some
    length has been seen beside decode rows, the next is at most twice as long: no estimate is
    trusted far from what was measured.
    """

    def __init__(self, max_step_tokens: int) -> None:
        self._max_step_tokens = max_step_tokens
        self._decode = DecodeCost()
        self._prefill = PrefillCost()
        self._max_chunk = 2 * MIN_PREFILL_TOKENS
        self._num_unmeasured = MAX_STEPS_UNMEASURED
        self._num_since_probe = MIN_STEPS_BETWEEN_PROBES

    def allow(self, *, num_decode_rows: int, num_prompts: int) -> PrefillAllowance:
        """For the step that is being scheduled; `num_prompts` could use prefill."""
        if num_decode_rows == 0:
            return self._allowance(math.inf, self._max_step_tokens)
        if num_prompts == 0 or self._must_probe(num_decode_rows):
            self._num_since_probe = 0
            return self._allowance(0.0, 0)
        self._num_unmeasured += 1
        self._num_since_probe += 1
        share = min(max(MIN_SHARE, SHARE_PER_PROMPT * num_prompts / num_decode_rows), MAX_SHARE)
        num_free = self._max_step_tokens - num_decode_rows
        decode_ns = self._decode.estimate_ns(num_decode_rows)
        return self._allowance(
            decode_ns * share,
            min(num_free, self._max_chunk),
            favoured_ns=decode_ns * max(0.0, FAVOURED_SHARE - share),
        )

    def prefill_estimate(self) -> PrefillEstimate | None:
        """What prompts take that are computed beside nothing else; None before the first."""
        return self._prefill.estimate()

    def observe(self, shape: StepShape, elapsed_ns: int) -> None:
        """A step was run. A clock that was set back meanwhile measured nothing."""
        if elapsed_ns <= 0:
            return
        if shape.num_prefill_tokens == 0:
            self._decode.observe(shape.num_decode_rows, elapsed_ns)
            self._num_unmeasured = 0
            return
        decode_ns = self._decode.estimate_ns(shape.num_decode_rows) if shape.num_decode_rows else 0
        self._prefill.observe(shape, added_ns=elapsed_ns - decode_ns, elapsed_ns=elapsed_ns)
        if shape.num_decode_rows:
            self._max_chunk = max(self._max_chunk, 2 * shape.num_prefill_tokens)

    def _must_probe(self, num_decode_rows: int) -> bool:
        if self._num_since_probe < MIN_STEPS_BETWEEN_PROBES:
            return False
        is_old = self._num_unmeasured >= MAX_STEPS_UNMEASURED
        return is_old or not self._decode.covers(num_decode_rows)

    def _allowance(
        self, left_ns: float, max_tokens: int, *, favoured_ns: float = 0.0
    ) -> PrefillAllowance:
        return PrefillAllowance(
            left_ns=left_ns,
            favoured_ns=favoured_ns,
            max_tokens=max_tokens,
            min_tokens=MIN_PREFILL_TOKENS,
            cost=self._prefill,
        )
