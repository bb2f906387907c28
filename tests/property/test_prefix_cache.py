"""The prefix cache against a naive model, with simulated page contents.

Each slot of each page remembers for which namespace and which tokens, from the sequence's first
on, its KV was computed. A wrong match, a page in two places, a page evicted too early and a copy
from a wrong page all end in a slot that holds something else.
"""

from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from prefix_cache import (
    Lease,
    OutOfPages,
    PageCounts,
    PrefixCache,
    page_identities,
    tenant_root,
)
from tests.property.naive_prefix_cache import NaiveCache, NaivePage, NaivePin
from tests.unit.prefix_cache.cached_prompts import Clock, Evictions

NUM_PAGES = 14
MAX_PAGES_OF_SEQUENCE = 9
PIN_SHARE = 0.8
KV_ROOT = b"kv root"
OWNERS = {b"a": "ada", b"a with salt": "ada", b"b": "bob"}
NAMESPACES = st.sampled_from([b"a", b"a", b"a with salt", b"b"])
CHOICES = st.integers(0, 100)
KEYS = st.sampled_from(["", "one", "two"])
# Runs of few symbols make sequences that are long, much alike, and different at any place.
RUNS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 7)), max_size=5)

Slot = tuple[bytes | None, tuple[int, ...]]


@dataclass(eq=False)
class Sequence:
    """A running sequence: of its tokens the first `num_computed` have KV in the lease's pages."""

    namespace: bytes | None
    tokens: list[int]
    lease: Lease
    num_computed: int
    tail_path: list[int]


class PrefixCacheMachine(RuleBasedStateMachine):
    """Sequences come, compute, publish, end and are aborted, in any order."""

    page_size = 4

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.evictions = Evictions()
        self.cache = PrefixCache(
            num_pages=NUM_PAGES,
            page_size=self.page_size,
            pin_share=PIN_SHARE,
            clock_ns=self.clock,
            identity_root=KV_ROOT,
            observer=self.evictions,
        )
        self.model = NaiveCache(
            self.page_size, num_pages=NUM_PAGES, pin_share=PIN_SHARE, owners=OWNERS
        )
        self.num_flushed = 0
        self.directory: set[bytes] = set()
        self.slots: dict[tuple[int, int], Slot] = {}
        self.running: list[Sequence] = []
        self.known: list[list[int]] = [[]]

    # Rules

    @precondition(lambda self: len(self.running) < 4)
    @rule(namespace=NAMESPACES, known=CHOICES, kept=CHOICES, runs=RUNS, spared=st.integers(0, 3))
    def acquire(
        self, namespace: bytes, known: int, kept: int, *, runs: list[tuple[int, int]], spared: int
    ) -> None:
        tokens = self.compose(known, kept, runs)
        max_tokens = len(tokens) - spared
        expected_len = self.model.match_len(namespace, tokens[: max(max_tokens, 0)])

        lease = self.cache.acquire(
            namespace, tokens, max_tokens=max_tokens, owner=OWNERS[namespace]
        )

        assert lease.num_cached_tokens == expected_len
        assert lease.num_shared_tokens == expected_len // self.page_size * self.page_size
        assert len(lease.page_ids) * self.page_size == lease.num_shared_tokens
        sequence = Sequence(namespace, tokens, lease, lease.num_shared_tokens, [])
        self.running.append(sequence)
        self.known = [*self.known[-5:], tokens]  # grows with the sequence
        self.model.tick()
        self.model.lock(lease.page_ids)
        if lease.tail is not None:
            sequence.tail_path = self.model.path(lease.tail.page_id)
            self.model.lock(sequence.tail_path)
        self.check_match(sequence)

    @precondition(lambda self: len(self.running) < 4)
    @rule(
        namespace=NAMESPACES,
        known=CHOICES,
        kept=CHOICES,
        runs=RUNS,
        pin_len=st.sampled_from([0, 0, 9, 100]),
        ttl_ns=st.integers(1, 200),
        key=KEYS,
    )
    def serve(
        self,
        namespace: bytes,
        known: int,
        *,
        kept: int,
        runs: list[tuple[int, int]],
        pin_len: int,
        ttl_ns: int,
        key: str,
    ) -> None:
        """A whole life in one step, so that the tree fills faster than single rules fill it."""
        self.acquire(namespace, known, kept, runs=runs, spared=1)
        newest = len(self.running) - 1
        self.compute(newest, self.max_len, symbol=0)
        if pin_len:
            self.publish(newest)
            self.pin(newest, pin_len, ttl_ns=ttl_ns, key=key)
        self.finish(newest)

    @precondition(lambda self: len(self.running) < 4)
    @rule(known=CHOICES, kept=CHOICES, runs=RUNS)
    def acquire_none(self, known: int, kept: int, runs: list[tuple[int, int]]) -> None:
        tokens = self.compose(known, kept, runs)
        self.running.append(Sequence(None, tokens, self.cache.acquire_none(), 0, []))

    @precondition(lambda self: self.running)
    @rule(which=CHOICES, num_tokens=st.integers(1, 24), symbol=st.integers(0, 2))
    def compute(self, which: int, num_tokens: int, *, symbol: int) -> None:
        sequence = self.pick(which)
        if sequence.num_computed + sequence.lease.num_tail_tokens >= len(sequence.tokens):
            sequence.tokens += [symbol] * num_tokens
            del sequence.tokens[self.max_len :]
        if not self.reserve(sequence, num_tokens):
            return
        self.copy_tail(sequence)
        end = min(sequence.num_computed + num_tokens, len(sequence.tokens))
        for position in range(sequence.num_computed, end):
            page_id = sequence.lease.page_ids[position // self.page_size]
            assert page_id not in self.model.pages, "a cached page would be overwritten"
            self.slots[page_id, position % self.page_size] = self.slot_of(sequence, position)
        sequence.num_computed = end

    @precondition(lambda self: self.running)
    @rule(which=CHOICES)
    def publish(self, which: int) -> None:
        sequence = self.pick(which)
        expected = self.publish_in_model(sequence)
        self.cache.publish(sequence.lease, sequence.tokens[: sequence.num_computed])
        assert sequence.lease.page_ids == expected
        self.keep_quota(sequence)

    @precondition(lambda self: self.running)
    @rule(
        which=CHOICES,
        num_tokens=st.integers(1, 36),
        ttl_ns=st.integers(1, 200),
        key=KEYS,
    )
    def pin(self, which: int, num_tokens: int, *, ttl_ns: int, key: str) -> None:
        sequence = self.pick(which)
        lease, until_ns = sequence.lease, self.clock.now_ns + ttl_ns
        num_pages = min(-(-num_tokens // self.page_size), lease.num_locked_pages)
        expected = 0
        if sequence.namespace is not None:
            prefix = tuple(sequence.tokens[: num_pages * self.page_size])
            pin = NaivePin(sequence.namespace, prefix, until_ns, key, source=lease)
            expected = self.model.pin(pin)
        assert self.cache.pin(lease, num_tokens, until_ns=until_ns, key=key) == expected

    @rule(num_ns=st.integers(1, 30))
    def pass_time(self, num_ns: int) -> None:
        self.clock.now_ns += num_ns
        self.model.expire(self.clock.now_ns)

    @rule(owner=st.sampled_from(["ada", "bob"]), max_pages=st.integers(0, NUM_PAGES))
    def set_quota(self, owner: str, max_pages: int) -> None:
        quota = max_pages if 2 < max_pages < NUM_PAGES else None
        self.model.set_quota(owner, quota)
        self.cache.set_quota(owner, quota)

    @precondition(lambda self: self.running)
    @rule(which=CHOICES)
    def finish(self, which: int) -> None:
        sequence = self.pick(which)
        computed = sequence.tokens[: sequence.num_computed]
        self.unlock_tail(sequence)
        page_ids = self.publish_in_model(sequence)
        self.keep_quota(sequence)
        num_full = len(computed) // self.page_size
        if sequence.namespace is not None and len(computed) % self.page_size:
            if self.model.match_len(sequence.namespace, computed) < len(computed):
                self.model.tick()
                self.model.insert(page_ids[num_full], sequence.namespace, computed)
        if sequence.namespace is not None and num_full:
            self.model.unlock(page_ids[:num_full])
        self.keep_quota(sequence)
        self.cache.release(sequence.lease, computed)
        self.end(sequence)

    @precondition(lambda self: self.running)
    @rule(which=CHOICES)
    def abort(self, which: int) -> None:
        sequence = self.pick(which)
        self.unlock_tail(sequence)
        if sequence.lease.num_locked_pages:
            self.model.unlock(sequence.lease.page_ids[: sequence.lease.num_locked_pages])
        self.keep_quota(sequence)
        self.cache.release(sequence.lease, None)
        self.end(sequence)

    @rule(namespace=NAMESPACES, known=CHOICES, kept=CHOICES, runs=RUNS)
    def peek(self, namespace: bytes, known: int, kept: int, runs: list[tuple[int, int]]) -> None:
        tokens = self.compose(known, kept, runs)
        assert self.cache.peek(namespace, tokens) == self.model.match_len(namespace, tokens)

    @precondition(lambda self: len(self.model.pages) > NUM_PAGES - 4)
    @rule(owner=st.sampled_from([None, "ada", "bob", "nobody"]))
    def flush(self, owner: str | None) -> None:
        num_flushed = self.model.flush(owner)
        assert self.cache.flush(owner) == num_flushed
        self.num_flushed += num_flushed

    @rule()
    def take_notes(self) -> None:
        """Who keeps a list of pages by what is noted, has those of the tree."""
        self.directory -= set(self.cache.take_removed())
        for note in self.cache.take_stored():
            if self.cache.is_current(note.page_id, note.generation):
                assert self.identity_of(self.model.pages[note.page_id]) == note.identity
                self.directory.add(note.identity)
        assert self.directory == {
            self.identity_of(page)
            for page in self.model.pages.values()
            if len(page.prefix) % self.page_size == 0
        }

    # Invariants, after every step

    @invariant()
    def the_cache_is_sound(self) -> None:
        self.cache.check_invariants()

    @invariant()
    def every_page_is_in_one_place(self) -> None:
        held = [p for s in self.running for p in s.lease.page_ids[s.lease.num_locked_pages :]]
        num_cached = len(self.model.pages)
        num_free = NUM_PAGES - num_cached - len(held)
        assert len(set(held)) == len(held)
        assert set(held).isdisjoint(self.model.pages)
        assert self.cache.counts() == PageCounts(
            num_free,
            num_cached,
            self.model.num_locked,
            len(held),
            NUM_PAGES,
            pinned=self.model.num_pinned_of(),
        )
        assert self.cache.num_available() == num_free + num_cached - self.model.num_locked

    @invariant()
    def every_cached_page_is_found_and_holds_its_tokens(self) -> None:
        for page_id, page in self.model.pages.items():
            assert self.cache.peek(page.namespace, page.prefix) == len(page.prefix)
            start = (len(page.prefix) - 1) // self.page_size * self.page_size
            for position in range(start, len(page.prefix)):
                slot = self.slots[page_id, position - start]
                assert slot == (page.namespace, page.prefix[: position + 1])

    @invariant()
    def every_evicted_page_was_told_once(self) -> None:
        num_told = sum(num_pages for *_, num_pages in self.evictions.runs)
        assert num_told == self.cache.num_evicted_pages + self.num_flushed

    @invariant()
    def every_running_sequence_still_has_its_tokens(self) -> None:
        for sequence in self.running:
            for position in range(sequence.num_computed):
                page_id = sequence.lease.page_ids[position // self.page_size]
                slot = self.slots[page_id, position % self.page_size]
                assert slot == self.slot_of(sequence, position)

    # Verbs of the rules

    @property
    def max_len(self) -> int:
        return MAX_PAGES_OF_SEQUENCE * self.page_size

    def pick(self, which: int) -> Sequence:
        return self.running[which % len(self.running)]

    def compose(self, known: int, kept: int, runs: list[tuple[int, int]]) -> list[int]:
        """The beginning of an earlier sequence and something else after it."""
        base = self.known[known % len(self.known)]
        tokens = base[: kept % (len(base) + 1)]
        stretch = self.page_size // 4
        tokens += [symbol for symbol, length in runs for _ in range(length * stretch)]
        return (tokens or [0])[: self.max_len]

    def slot_of(self, sequence: Sequence, position: int) -> Slot:
        return sequence.namespace, tuple(sequence.tokens[: position + 1])

    def check_match(self, sequence: Sequence) -> None:
        """Shared pages and tail hold exactly the tokens the lease says they hold."""
        lease = sequence.lease
        page_ids = lease.page_ids + ([lease.tail.page_id] if lease.tail else [])
        for position in range(lease.num_cached_tokens):
            slot = self.slots[page_ids[position // self.page_size], position % self.page_size]
            assert slot == self.slot_of(sequence, position)

    def reserve(self, sequence: Sequence, num_tokens: int) -> bool:
        """Extends the lease for the tokens, in cache and model; False where pages are short."""
        end = sequence.num_computed + sequence.lease.num_tail_tokens + num_tokens
        end = min(end, len(sequence.tokens))
        num_missing = max(0, -(-end // self.page_size) - len(sequence.lease.page_ids))
        counts, num_evicted = self.cache.counts(), self.cache.num_evicted_pages
        if num_missing > counts.free + counts.cached - counts.locked:
            with pytest.raises(OutOfPages):
                self.cache.extend(sequence.lease, num_missing)
            assert self.cache.num_evicted_pages == num_evicted
            return False
        page_ids = self.cache.extend(sequence.lease, num_missing)
        num_victims = max(0, num_missing - counts.free)
        assert self.cache.num_evicted_pages == num_evicted + num_victims
        for _ in range(num_victims):
            assert self.model.evict() in page_ids
        for page_id in page_ids:
            for index in range(self.page_size):
                self.slots.pop((page_id, index), None)
        return True

    def copy_tail(self, sequence: Sequence) -> None:
        tail = sequence.lease.tail
        if tail is None:
            return
        target = sequence.lease.page_ids[sequence.num_computed // self.page_size]
        for index in range(tail.num_tokens):
            self.slots[target, index] = self.slots[tail.page_id, index]
        sequence.num_computed += tail.num_tokens
        self.unlock_tail(sequence)
        self.cache.release_tail(sequence.lease)

    def unlock_tail(self, sequence: Sequence) -> None:
        if sequence.tail_path:
            self.model.unlock(sequence.tail_path)
            sequence.tail_path = []
            self.keep_quota(sequence)

    def keep_quota(self, sequence: Sequence) -> None:
        if sequence.namespace is not None:
            self.model.keep_quota(OWNERS[sequence.namespace])

    def identity_of(self, page: NaivePage) -> bytes | None:
        """None for a partial page."""
        if len(page.prefix) % self.page_size:
            return None
        root = tenant_root(KV_ROOT, page.namespace)
        return list(page_identities(root, page.prefix, page_size=self.page_size))[-1]

    def publish_in_model(self, sequence: Sequence) -> list[int]:
        """The page ids the lease must have after publishing what is computed."""
        lease, page_ids = sequence.lease, list(sequence.lease.page_ids)
        if sequence.namespace is None:
            return page_ids
        for index in range(lease.num_locked_pages, sequence.num_computed // self.page_size):
            prefix = sequence.tokens[: (index + 1) * self.page_size]
            page_ids[index] = self.model.insert(page_ids[index], sequence.namespace, prefix)
            self.model.lock([page_ids[index]])
        return page_ids

    def end(self, sequence: Sequence) -> None:
        self.cache.release(sequence.lease, sequence.tokens)  # the second time does nothing
        self.running.remove(sequence)


class PrefixCacheMachineOfUsualPages(PrefixCacheMachine):
    page_size = 16


SETTINGS = settings(
    derandomize=True,
    max_examples=120,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestSmallPages = PrefixCacheMachine.TestCase
TestSmallPages.settings = SETTINGS
TestUsualPages = PrefixCacheMachineOfUsualPages.TestCase
TestUsualPages.settings = settings(SETTINGS, max_examples=60)
