"""How many pages the running sequences will still need, before which no other is let in.

Owns the lengths of recent answers. Called by the scheduler; knows no sequence and no page.
"""

import bisect
import itertools
from collections import deque
from dataclasses import dataclass

# Enough for a mean that one answer does not move, few enough to follow a load that changes.
NUM_LENGTHS = 128

# An answer's length while there is nothing to go by: of the order of a chat's.
UNKNOWN_LEN = 256


class OutputLengths:
    """The lengths of the latest answers, in tokens: what is known of those that have begun."""

    def __init__(self) -> None:
        self._latest: deque[int] = deque()
        self._sorted: list[int] = []
        # _sums[i] is the sum of _sorted[i:].
        self._sums: list[int] = [0]

    def observe(self, num_tokens: int) -> None:
        """An answer has ended, after so many tokens."""
        self._latest.append(num_tokens)
        bisect.insort(self._sorted, num_tokens)
        if len(self._latest) > NUM_LENGTHS:
            oldest = self._latest.popleft()
            del self._sorted[bisect.bisect_left(self._sorted, oldest)]
        self._sums = [*itertools.accumulate(reversed(self._sorted), initial=0)][::-1]

    def expect(self, num_tokens: int, *, max_tokens: int) -> int:
        """The length of an answer that has `num_tokens` already: the mean of those that were
        longer. One longer than all of them may become as long again."""
        index = bisect.bisect_right(self._sorted, num_tokens)
        num_longer = len(self._sorted) - index
        expected = -(-self._sums[index] // num_longer) if num_longer else _unknown_len(num_tokens)
        return min(expected, max_tokens)

    def chance(self, num_tokens: int, num_more: int, *, max_tokens: int) -> float:
        """That an answer which has `num_tokens` gets `num_more` more."""
        wanted = num_tokens + num_more
        if wanted > max_tokens:
            return 0.0
        num_longer = len(self._sorted) - bisect.bisect_right(self._sorted, num_tokens)
        if num_longer == 0:
            return float(wanted <= _unknown_len(num_tokens))
        return (len(self._sorted) - bisect.bisect_left(self._sorted, wanted)) / num_longer


def _unknown_len(num_tokens: int) -> int:
    return max(UNKNOWN_LEN, 2 * num_tokens)


@dataclass(frozen=True, slots=True)
class Growth:
    """A sequence's answer so far, and its pages: `num_fitting` more tokens have room in them, and
    `num_pages` are free again when it ends."""

    num_tokens: int
    max_tokens: int
    num_fitting: int
    num_pages: int


class GrowthForecast:
    """Whether a set of sequences can be expected to find the pages it grows into."""

    def __init__(self, lengths: OutputLengths, *, page_size: int) -> None:
        self._lengths = lengths
        self._page_size = page_size

    def fits(self, growths: list[Growth], *, num_pages: int, num_steps: float) -> bool:
        """Whether `num_pages` free pages will do for `num_steps` steps of a token each.

        Looks at the steps at which one of them is expected to end, as the need is greatest just
        before; those that end earlier have returned their pages.
        """
        ends = {min(num_steps, self._expected_len(one) - one.num_tokens) for one in growths}
        num_now = sum(growth.num_pages for growth in growths)
        return all(
            sum(self._num_expected(growth, int(end)) for growth in growths) <= num_now + num_pages
            for end in ends
        )

    def _expected_len(self, growth: Growth) -> int:
        return self._lengths.expect(growth.num_tokens, max_tokens=growth.max_tokens)

    def _num_expected(self, growth: Growth, num_more: int) -> float:
        """Pages after so many tokens more, in the mean over whether it gets that far."""
        num_taken = -(-max(0, num_more - growth.num_fitting) // self._page_size)
        chance = self._lengths.chance(growth.num_tokens, num_more, max_tokens=growth.max_tokens)
        return chance * (growth.num_pages + num_taken)
