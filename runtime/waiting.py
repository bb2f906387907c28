"""The queue of sequences that wait for admission, and the rule by which one waits for another.

Owned by the scheduler. Neither holds pages: a waiting sequence has no lease.
"""

import bisect
import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter

from prefix_cache import PrefixCache
from runtime.fairness import FairTurns, TenantCounters
from runtime.request import Sequence, SequenceState

# A leader moves on every step unless decode rows use up the whole budget; after this long a
# follower computes the prefix itself rather than wait for what might never come.
MAX_FOLLOW_NS = 20_000_000_000


# What a step may spend on looking into the tree for the order of the queue: about 0.1 ms of a
# walk that compares 4,000 tokens in 77 us (two cores at 2.6 GHz, CPython 3.11, 2026-11).
MAX_PEEKED_TOKENS = 4_096
PEEK_OVERHEAD_TOKENS = 512

# Comparing prompts with those that run takes up to 0.1 ms each; more than there are slots need
# not be compared in one step, the others wait for the next.
MAX_CHOICES_PER_STEP = 32

# After one old request is computed the next starts after this long, even if the others have not
# computed as much yet: where their prefixes are warm that could take minutes.
MAX_DEBT_NS = 2_000_000_000


@dataclass(eq=False, slots=True)
class _Entry:
    """A waiting sequence, with the tokens it has to compute by the last look into the tree."""

    sequence: Sequence
    num_tokens: int

    @property
    def sort_key(self) -> "tuple[int, int, _Entry]":
        return _rank(self.num_tokens), self.sequence.key, self


def _rank(num_tokens: int) -> int:
    """The less to compute, the lower. Equal within a factor of two: less than that is not worth
    an overtaking."""
    return num_tokens.bit_length()


def _is_aged(sequence: Sequence, now_ns: int, max_overtaking_ns: int) -> bool:
    """Whether it joined too long ago to be overtaken any more."""
    return now_ns - sequence.joined_ns >= max_overtaking_ns


class TenantQueue:
    """One tenant's sequences in the order in which they shall be looked at.

    First those that were preempted, then those that joined longer than `max_overtaking_ns` ago.
    Then those with the fewest tokens to compute: a cached prefix is used while it is there, and
    the mean time to the first token is the least. Equals are served as they came. How much is
    cached is looked up for a few sequences a step, in turn; until then none is.

    Where all wait for long, the old ones come first for half of the tokens computed only, or
    with MAX_DEBT_NS between them: they get on, and a prefix that is warm is not always lost to
    the next in line.
    """

    def __init__(self, cache: PrefixCache, *, max_overtaking_ns: int) -> None:
        self._cache = cache
        self._max_overtaking_ns = max_overtaking_ns
        self._preempted: list[Sequence] = []
        # In the order of joining, which is that of age.
        self._entries: dict[int, _Entry] = {}
        self._by_rank: list[tuple[int, int, _Entry]] = []
        self._to_peek: deque[_Entry] = deque()
        self._by_age: set[Sequence] = set()
        # Tokens that old sequences computed before their turn, and others did not since.
        self._debt = 0
        self._indebted_since_ns = 0
        self._last_old: Sequence | None = None

    def __len__(self) -> int:
        return len(self._preempted) + len(self._entries)

    def add(self, sequence: Sequence, now_ns: int) -> None:
        """Joins the queue; who was preempted keeps the age it had."""
        if sequence.phases.num_preemptions:
            bisect.insort(self._preempted, sequence, key=lambda one: one.key)
            return
        sequence.joined_ns = now_ns
        entry = _Entry(sequence, len(sequence.token_ids))
        self._entries[sequence.key] = entry
        bisect.insort(self._by_rank, entry.sort_key)
        if sequence.takes_prefix:
            self._to_peek.appendleft(entry)

    def remove(self, sequence: Sequence) -> None:
        entry = self._entries.pop(sequence.key, None)
        if entry is None:
            self._preempted.remove(sequence)
        else:
            self._unlist(entry)

    def admit(self, sequence: Sequence, num_tokens: int, now_ns: int) -> None:
        """Leaves the queue to compute so many tokens."""
        self.remove(sequence)
        if sequence in self._by_age:
            self._debt += num_tokens
            self._last_old, self._indebted_since_ns = sequence, now_ns
        else:
            self._debt = max(0, self._debt - num_tokens)

    def in_order(self, now_ns: int) -> Iterator[tuple[Sequence, int]]:
        """Each with its rank: 0 where nobody may overtake it, else lower for fewer tokens. The
        loop may remove or admit what it was given."""
        yield from ((sequence, 0) for sequence in tuple(self._preempted))
        self._by_age.clear()
        self._forgive(now_ns)
        for entry in tuple(self._entries.values()):
            if self._debt or not _is_aged(entry.sequence, now_ns, self._max_overtaking_ns):
                break
            self._by_age.add(entry.sequence)
            yield entry.sequence, 0
        for rank, _, entry in tuple(self._by_rank):
            if entry.sequence not in self._by_age:
                yield entry.sequence, rank

    def _forgive(self, now_ns: int) -> None:
        """The debt, when the last old one has been computed for long enough."""
        if self._last_old is not None and self._last_old.is_prefilling:
            self._indebted_since_ns = now_ns
        elif now_ns - self._indebted_since_ns >= MAX_DEBT_NS:
            self._debt = 0

    def owes_nothing(self, now_ns: int) -> bool:
        """Whether there is no debt, or none that would count any more."""
        self._forgive(now_ns)
        return self._debt == 0

    def refresh(self, max_tokens: int = MAX_PEEKED_TOKENS) -> int:
        """Looks a few sequences up in the tree: the newest first, then in turn. A queue of one
        is in order without. Returns what is left of `max_tokens`, 0 or less where nothing is."""
        left = max_tokens
        for _ in range(len(self._to_peek) if len(self._entries) > 1 else 0):
            if left <= 0:
                break
            entry = self._to_peek.popleft()
            if self._entries.get(entry.sequence.key) is entry:
                left -= self._peek(entry) + PEEK_OVERHEAD_TOKENS
                self._to_peek.append(entry)
        return left

    def _peek(self, entry: _Entry) -> int:
        """How much is cached; the entry moves to its place by what is not."""
        sequence = entry.sequence
        num_cached = self._cache.peek(sequence.request.submit.namespace, sequence.token_ids)
        self._unlist(entry)
        entry.num_tokens = len(sequence.token_ids) - num_cached
        bisect.insort(self._by_rank, entry.sort_key)
        return num_cached

    def _unlist(self, entry: _Entry) -> None:
        del self._by_rank[bisect.bisect_left(self._by_rank, entry.sort_key)]


class WaitingQueue:
    """The queues of all tenants, and the order between them.

    Between tenants their turns decide alone, which follow from what each was served; within one
    its own queue. So nobody's age or preemption is a reason to overtake another tenant, and what
    the aged owe (see TenantQueue) they owe to those of the same tenant.
    """

    def __init__(
        self,
        cache: PrefixCache,
        *,
        counters: TenantCounters,
        turns: FairTurns,
        max_overtaking_ns: int,
    ) -> None:
        self._cache = cache
        self._counters = counters
        self._turns = turns
        self._max_overtaking_ns = max_overtaking_ns
        # Empty ones are kept while they owe. The first is the next to be looked up in.
        self._queues: dict[str, TenantQueue] = {}
        self._len = 0
        self.num_joined = 0

    def __len__(self) -> int:
        return self._len

    @property
    def num_queues(self) -> int:
        return len(self._queues)

    @property
    def tenants(self) -> list[str]:
        """Those of which a sequence waits."""
        return [tenant for tenant, queue in self._queues.items() if len(queue)]

    def add(self, sequence: Sequence, now_ns: int) -> None:
        """Joins its tenant's queue; who was preempted keeps the age it had."""
        tenant = tenant_of(sequence)
        if tenant not in self._queues:
            self._drop_empty(now_ns)
            queue = TenantQueue(self._cache, max_overtaking_ns=self._max_overtaking_ns)
            self._queues[tenant] = queue
        self._queues[tenant].add(sequence, now_ns)
        self._counters.joined(tenant)
        self._len += 1
        self.num_joined += 1

    def remove(self, sequence: Sequence) -> None:
        tenant = tenant_of(sequence)
        self._queues[tenant].remove(sequence)
        self._counters.left(tenant)
        self._len -= 1

    def admit(self, sequence: Sequence, num_tokens: int, now_ns: int) -> None:
        """Leaves the queue to compute so many tokens."""
        tenant = tenant_of(sequence)
        self._queues[tenant].admit(sequence, num_tokens, now_ns)
        self._counters.started(tenant)
        self._len -= 1

    def refresh(self) -> None:
        """Looks a few sequences up in the tree, from the tenant on where the last look ended."""
        left = MAX_PEEKED_TOKENS
        for tenant in tuple(self._queues):
            if left <= 0:
                return
            left = self._queues[tenant].refresh(left)
            self._queues[tenant] = self._queues.pop(tenant)

    def in_order(self, prefilling: list[Sequence], now_ns: int) -> Iterator[Sequence]:
        """Those that wait and those in prefill, in one order. The loop may remove or admit what
        it was given, which may change whose turn it is."""
        left = self._by_tenant(prefilling, self.tenants)
        walks: dict[str, Iterator[Sequence]] = {}
        order: list[str] = []
        version = -1
        while left:
            if version != self._counters.version:
                order = sorted(left, key=self._turns.key, reverse=True)
                version = self._counters.version
            tenant = order[-1]
            if tenant not in walks:
                walks[tenant] = self._walk(tenant, left[tenant], now_ns)
            sequence = next(walks[tenant], None)
            if sequence is None:
                del left[order.pop()]
            else:
                yield sequence

    def prefilling_in_order(self, prefilling: list[Sequence], now_ns: int) -> list[Sequence]:
        """As `in_order` has them, without those that wait."""
        by_tenant = self._by_tenant(prefilling)
        return [
            sequence
            for tenant in sorted(by_tenant, key=self._turns.key)
            for sequence, _ in self._ranked(by_tenant[tenant], now_ns)
        ]

    def _walk(self, tenant: str, prefilling: list[Sequence], now_ns: int) -> Iterator[Sequence]:
        """One tenant's; of equals, the running one comes first."""
        queue = self._queues.get(tenant)
        waiting = queue.in_order(now_ns) if queue is not None else iter(())
        merged = heapq.merge(self._ranked(prefilling, now_ns), waiting, key=itemgetter(1))
        return (sequence for sequence, _ in merged)

    def _ranked(self, prefilling: list[Sequence], now_ns: int) -> list[tuple[Sequence, int]]:
        ranked = ((one, self._rank(one, now_ns)) for one in prefilling)
        return sorted(ranked, key=itemgetter(1))

    def _rank(self, prefilling: Sequence, now_ns: int) -> int:
        """Where a running sequence stands among its tenant's waiting ones."""
        if _is_aged(prefilling, now_ns, self._max_overtaking_ns):
            return 0
        return _rank(prefilling.num_uncomputed_tokens)

    def _by_tenant(
        self, sequences: list[Sequence], others: Iterable[str] = ()
    ) -> dict[str, list[Sequence]]:
        by_tenant: dict[str, list[Sequence]] = {tenant: [] for tenant in others}
        for sequence in sequences:
            by_tenant.setdefault(tenant_of(sequence), []).append(sequence)
        return by_tenant

    def _drop_empty(self, now_ns: int) -> None:
        for tenant, queue in tuple(self._queues.items()):
            if not len(queue) and queue.owes_nothing(now_ns):
                del self._queues[tenant]


def tenant_of(sequence: Sequence) -> str:
    """Whom fairness counts the sequence for; "" is a tenant as any other."""
    return sequence.request.submit.tenant


class PrefixFollowing:
    """Of identical uncached prefixes that arrive together one is computed, the others wait.

    A waiting sequence follows a running one (its leader) while that one is computing full pages
    that both begin with and that are not in the tree. It stops when the pages are there, when
    the leader is gone or preempted, or after MAX_FOLLOW_NS.
    """

    def __init__(self, cache: PrefixCache, *, page_size: int) -> None:
        self._cache = cache
        self._page_size = page_size
        self._num_choices_left = MAX_CHOICES_PER_STEP

    def start_step(self) -> None:
        """Leaders may be chosen anew."""
        self._num_choices_left = MAX_CHOICES_PER_STEP

    def must_wait(self, sequence: Sequence, running: Iterable[Sequence], *, now_ns: int) -> bool:
        """Whether `sequence` should not be admitted now; notes whom it follows. One that could
        not be compared in this step waits for the next."""
        if not sequence.takes_prefix:
            return False
        if not _is_leading(sequence.leader, sequence.leader_len):
            if self._num_choices_left == 0:
                return True
            self._num_choices_left -= 1
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
        """Tokens in the full pages of input that both begin with and that the candidate shares;
        the last token of a sequence is always its own to compute."""
        submit, other = sequence.request.submit, candidate.request.submit
        if (
            not candidate.is_prefilling
            or not other.use_cache
            or submit.namespace != other.namespace
        ):
            return 0
        num_shared = candidate.num_kept(candidate.input_len)
        limit = min(len(sequence.token_ids) - 1, num_shared) // self._page_size
        num_pages = self._num_equal_pages(sequence.token_ids, candidate.token_ids, limit)
        return num_pages * self._page_size

    def _num_equal_pages(self, left: list[int], right: list[int], limit: int) -> int:
        """Of the first `limit` pages, those before the first that differs, by halving: whole
        slices are compared at C's speed. Most prompts differ in the first page."""
        low, high = 0, limit
        middle = min(1, limit)
        while low < high:
            start, end = low * self._page_size, middle * self._page_size
            if left[start:end] == right[start:end]:
                low = middle
            else:
                high = middle - 1
            middle = (low + high + 1) // 2
        return low

    def _peek(self, sequence: Sequence) -> int:
        return self._cache.peek(sequence.request.submit.namespace, sequence.token_ids)


def _is_leading(leader: Sequence | None, shared_len: int) -> bool:
    return (
        leader is not None
        and leader.state is SequenceState.RUNNING
        and leader.num_computed_tokens < shared_len
    )
