"""The queue of sequences that wait for admission, and the rule by which one waits for another.

Owned by the scheduler. Neither holds pages: a waiting sequence has no lease.
"""

import bisect
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Ordered
from itertools import takewhile

from prefix_cache import PrefixCache
from runtime.request import Sequence, SequenceState

# A leader moves on every step unless decode rows use up the whole budget; after this long a
# follower computes the prefix itself rather than wait for what might never come.
MAX_FOLLOW_NS = 20_000_000_000


def _rank(sequence: Sequence) -> tuple[bool, int]:
    """First come, first served, preempted sequences before all others."""
    return (sequence.phases.num_preemptions == 0, sequence.key)


class WaitingQueue:
    """Sequences in the order in which they shall be looked at; `_rank` alone decides it."""

    def __init__(self) -> None:
        self._sequences: list[Sequence] = []

    def __len__(self) -> int:
        return len(self._sequences)

    def __iter__(self) -> Iterator[Sequence]:
        """Over a copy, so that the loop may remove."""
        return iter(tuple(self._sequences))

    def add(self, sequence: Sequence) -> None:
        bisect.insort(self._sequences, sequence, key=_rank)

    def remove(self, sequence: Sequence) -> None:
        self._sequences.remove(sequence)


class PrefixFollowing:
    """Of identical uncached prefixes that arrive together one is computed, the others wait.

    A waiting sequence follows a running one (its leader) while that one is computing full pages
    that both begin with and that are not in the tree. It stops when the pages are there, when
    the leader is gone or preempted, or after MAX_FOLLOW_NS.
    """

    def __init__(self, cache: PrefixCache, *, page_size: int) -> None:
        self._cache = cache
        self._page_size = page_size

    def must_wait(self, sequence: Sequence, running: Iterable[Sequence], *, now_ns: int) -> bool:
        """Whether `sequence` should not be admitted now; notes whom it follows."""
        if not sequence.request.submit.use_cache:
            return False
        if not _is_leading(sequence.leader, sequence.leader_len):
            self._choose_leader(sequence, running)
        if sequence.leader is None:
            return False
        if sequence.following_since_ns is None:
            sequence.following_since_ns = now_ns
        return now_ns - sequence.following_since_ns < MAX_FOLLOW_NS

    def _choose_leader(self, sequence: Sequence, running: Iterable[Sequence]) -> None:
        sequence.leader, sequence.leader_len = None, 0
        for candidate in running:
            shared_len = self._shared_len(sequence, candidate)
            if shared_len > sequence.leader_len and _is_leading(candidate, shared_len):
                sequence.leader, sequence.leader_len = candidate, shared_len
        if sequence.leader is not None and self._peek(sequence) >= sequence.leader_len:
            sequence.leader = None

    def _shared_len(self, sequence: Sequence, candidate: Sequence) -> int:
        """Tokens in the full pages of input that both begin with; the last token of a
        sequence is always its own to compute."""
        submit, other = sequence.request.submit, candidate.request.submit
        if (
            not candidate.is_prefilling
            or not other.use_cache
            or submit.namespace != other.namespace
        ):
            return 0
        limit = min(len(sequence.token_ids) - 1, candidate.input_len) // self._page_size
        pages = takewhile(
            lambda page: (
                self._page(sequence.token_ids, page) == self._page(candidate.token_ids, page)
            ),
            range(limit),
        )
        return sum(1 for _ in pages) * self._page_size

    def _page(self, token_ids: Ordered[int], page: int) -> Ordered[int]:
        return token_ids[page * self._page_size : (page + 1) * self._page_size]

    def _peek(self, sequence: Sequence) -> int:
        return self._cache.peek(sequence.request.submit.namespace, sequence.token_ids)


def _is_leading(leader: Sequence | None, shared_len: int) -> bool:
    return (
        leader is not None
        and leader.state is SequenceState.RUNNING
        and leader.num_computed_tokens < shared_len
    )
