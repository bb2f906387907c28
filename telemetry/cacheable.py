"""How much of each prompt could have come from a cache: an upper bound from the tokens alone."""

import bisect
import struct
from collections.abc import Sequence
from dataclasses import dataclass

_ID_BYTES = 4


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request in tokens: what was sent at `start_ns`, and what had come by `end_ns`."""

    start_ns: int
    end_ns: int
    prompt_ids: tuple[int, ...]
    output_ids: tuple[int, ...]


class KnownTokens:
    """Everything that one key has sent and received so far.

    Sequences are kept as sorted bytes, four a token: the one with the longest common beginning is
    then a neighbour of where a new one would stand.
    """

    def __init__(self) -> None:
        self._sequences: list[bytes] = []

    def longest_prefix(self, ids: Sequence[int]) -> int:
        """How many of the first tokens are known."""
        wanted = _pack(ids)
        place = bisect.bisect_left(self._sequences, wanted)
        neighbours = self._sequences[max(place - 1, 0) : place + 1]
        return max((_common_tokens(wanted, one) for one in neighbours), default=0)

    def add(self, ids: Sequence[int]) -> None:
        bisect.insort(self._sequences, _pack(ids))


def cacheable_tokens(exchanges: Sequence[Exchange], known: KnownTokens | None = None) -> list[int]:
    """For each exchange: how many tokens of its prompt a perfect cache could have had. `known` is
    what came before, and knows these too afterwards.

    A perfect cache knows a prompt from the moment it was sent and an answer from its end. The last
    token of a prompt always has to be computed.
    """
    known = known or KnownTokens()
    found = [0] * len(exchanges)
    starts = [(one.start_ns, 1, index) for index, one in enumerate(exchanges)]
    ends = [(one.end_ns, 0, index) for index, one in enumerate(exchanges)]
    for _, is_start, index in sorted(starts + ends):
        one = exchanges[index]
        if is_start:
            longest = known.longest_prefix(one.prompt_ids)
            found[index] = max(0, min(longest, len(one.prompt_ids) - 1))
            known.add(one.prompt_ids)
        else:
            known.add((*one.prompt_ids, *one.output_ids))
    return found


def _pack(ids: Sequence[int]) -> bytes:
    return struct.pack(f">{len(ids)}I", *ids)


def _common_tokens(left: bytes, right: bytes) -> int:
    """Halves the range until the first difference is found: comparing bytes is fast."""
    low, high = 0, min(len(left), len(right)) // _ID_BYTES
    while low < high:
        middle = (low + high + 1) // 2
        start, end = low * _ID_BYTES, middle * _ID_BYTES
        if left[start:end] == right[start:end]:
            low = middle
        else:
            high = middle - 1
    return low
