"""Tree, pool and lower tiers together: no page is ever served with other content than its tokens'.

Sequences come, compute, pin, end and are aborted; pages are copied to a tier in host memory and to
a folder, some time after they entered the tree; they are fetched, and put back some time after
that; meanwhile anything may be evicted, flushed, forgotten, damaged or restarted.
"""

import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from prefix_cache import Lease, OutOfPages, PrefixCache
from prefix_cache.identity import page_identities, tenant_root
from prefix_cache.packed_tokens import pack
from prefix_cache.tiers.disk_tier import DiskTier
from prefix_cache.tiers.host_tier import HostTier
from prefix_cache.tiers.tier import PageKey, PageTier, StoredPage
from tests.property.page_contents import (
    PageMemory,
    Prefix,
    cached_pages,
    page_of,
    slot_of,
)

if TYPE_CHECKING:
    from prefix_cache.page_notes import StoredNote

NUM_PAGES = 12
PAGE_SIZE = 4
MAX_TOKENS = 7 * PAGE_SIZE + 2
KV_ROOT = b"k" * 32
# Room for some pages only: an entry in host memory and a file take some hundreds of bytes.
HOST_BYTES, DISK_BYTES = 4000, 6000
OWNERS = {b"a": "one", b"b": "one", b"c": "two"}
NAMESPACES = st.sampled_from(sorted(OWNERS))
CHOICES = st.integers(0, 100)
TIERS = st.sampled_from(["disk", "host", "host and disk"])
# Runs of few symbols make sequences that are much alike, and different at any place.
RUNS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 7)), max_size=5)


@dataclass(eq=False)
class Sequence:
    """A running one: of its tokens the first `num_computed` are in the lease's pages."""

    namespace: bytes
    tokens: Prefix
    lease: Lease
    num_computed: int


@dataclass(eq=False)
class Fetched:
    """Pages of a sequence from `start` on, as they came from a tier."""

    namespace: bytes
    tokens: Prefix
    start: int
    payloads: list[bytes | memoryview] = field(default_factory=list)


class CacheAndTiersMachine(RuleBasedStateMachine):
    """`prefixes` names what belongs under each identity that was ever stored."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="tiers-"))
        self.now_ns = 1_000_000_000
        self.prefixes: dict[bytes, tuple[bytes, Prefix]] = {}
        self.known: list[tuple[bytes, Prefix]] = [(b"a", ())]
        self.num_steps = 0
        self.begin()

    def teardown(self) -> None:
        self.disk.close()
        shutil.rmtree(self.folder)

    def begin(self) -> None:
        """A runtime starts: nothing but the folder is left of the one before."""
        self.cache = PrefixCache(
            num_pages=NUM_PAGES,
            page_size=PAGE_SIZE,
            clock_ns=self.clock_ns,
            identity_root=KV_ROOT,
        )
        self.memory = PageMemory(NUM_PAGES, PAGE_SIZE)
        self.host = HostTier(max_bytes=HOST_BYTES)
        self.disk = DiskTier(
            self.folder, root=KV_ROOT, max_bytes=DISK_BYTES, clock_ns=self.clock_ns
        )
        self.disk.start()
        self.running: list[Sequence] = []
        self.notes: list[StoredNote] = []
        self.fetched: list[Fetched] = []
        self.announced: set[bytes] = set()

    def clock_ns(self) -> int:
        self.now_ns += 1_000_000
        return self.now_ns

    # Sequences

    @precondition(lambda self: len(self.running) < 3)
    @rule(namespace=NAMESPACES, known=CHOICES, kept=CHOICES, runs=RUNS)
    def start(self, namespace: bytes, known: int, kept: int, runs: list[tuple[int, int]]) -> None:
        tokens = self.compose(known, kept, runs)
        lease = self.cache.acquire(
            namespace, tokens, max_tokens=len(tokens) - 1, owner=OWNERS[namespace]
        )
        sequence = Sequence(namespace, tokens, lease, lease.num_shared_tokens)
        self.check_pages_of(sequence)
        try:
            self.cache.extend(lease, -(-len(tokens) // PAGE_SIZE) - len(lease.page_ids))
        except OutOfPages:
            self.cache.release(lease, None)
            return
        self.copy_tail(sequence)
        self.known = [*self.known[-5:], (namespace, tokens)]
        self.running.append(sequence)

    @precondition(lambda self: self.running)
    @rule(which=CHOICES, num_tokens=st.integers(1, 12))
    def compute(self, which: int, num_tokens: int) -> None:
        sequence = self.pick(which)
        end = min(sequence.num_computed + num_tokens, len(sequence.tokens))
        for position in range(sequence.num_computed, end):
            slot = slot_of(sequence.namespace, sequence.tokens[: position + 1])
            page_id = sequence.lease.page_ids[position // PAGE_SIZE]
            self.memory.write(page_id, slot, first_slot=position % PAGE_SIZE)
        sequence.num_computed = end
        self.note_prefixes(sequence.namespace, sequence.tokens[:end])
        self.cache.publish(sequence.lease, sequence.tokens[:end])

    @precondition(lambda self: len(self.running) < 3)
    @rule(namespace=NAMESPACES, known=CHOICES, kept=CHOICES, runs=RUNS)
    def serve(self, namespace: bytes, known: int, kept: int, runs: list[tuple[int, int]]) -> None:
        """A whole life in one step, so that the tree fills faster than single rules fill it."""
        num_running = len(self.running)
        self.start(namespace, known, kept, runs)
        if len(self.running) > num_running:
            self.compute(num_running, MAX_TOKENS)
            self.finish(num_running)

    @precondition(lambda self: self.running)
    @rule(which=CHOICES, num_tokens=st.integers(1, MAX_TOKENS), time_s=st.integers(1, 3))
    def pin(self, which: int, num_tokens: int, time_s: int) -> None:
        until_ns = self.now_ns + time_s * 1_000_000_000
        self.cache.pin(self.pick(which).lease, num_tokens, until_ns=until_ns, key="k")

    @precondition(lambda self: self.running)
    @rule(which=CHOICES)
    def finish(self, which: int) -> None:
        sequence = self.pick(which)
        self.cache.release(sequence.lease, sequence.tokens[: sequence.num_computed])
        self.running.remove(sequence)

    @precondition(lambda self: self.running)
    @rule(which=CHOICES)
    def abort(self, which: int) -> None:
        sequence = self.pick(which)
        self.cache.release(sequence.lease, None)
        self.running.remove(sequence)

    # Tiers

    @precondition(lambda self: self.notes)
    @rule(count=st.integers(1, NUM_PAGES), to=TIERS)
    def write_behind(self, count: int, to: str) -> None:
        """Those that wait for longest; what has left the tree meanwhile is not copied."""
        taken, self.notes = self.notes[:count], self.notes[count:]
        pages = [
            StoredPage(PageKey(note.identity, note.tokens), self.memory.read(note.page_id))
            for note in taken
            if self.cache.is_current(note.page_id, note.generation)
        ]
        for page in pages:
            assert page.payload == self.expected(page.key.identity)
        for tier in self.tiers(to):
            tier.store(pages)

    @precondition(lambda self: len(self.fetched) < 3)
    @rule(known=CHOICES, where=TIERS, is_quick=st.booleans())
    def fetch(self, known: int, where: str, is_quick: bool) -> None:
        """The pages behind those that the tree has; put back at once, or some time later."""
        namespace, tokens = self.known[known % len(self.known)]
        start, end = self.cache.peek(namespace, tokens) // PAGE_SIZE, len(tokens) // PAGE_SIZE
        identities = self.cache.identities_of(namespace, tokens, num_pages=end)
        keys = [
            PageKey(identities[page], pack(tokens[page * PAGE_SIZE : (page + 1) * PAGE_SIZE]))
            for page in range(start, end)
        ]
        tier = self.tiers(where)[0]
        count = tier.count_leading(keys)
        payloads = tier.fetch(keys[:count])
        for key, payload in zip(keys, payloads, strict=False):
            assert bytes(payload) == self.expected(key.identity)
        if payloads:
            self.fetched.append(Fetched(namespace, tokens, start, payloads))
            if is_quick:
                self.promote(len(self.fetched) - 1)

    @precondition(lambda self: self.fetched)
    @rule(which=CHOICES)
    def promote(self, which: int) -> None:
        """What came goes into pages of the pool, unless those in front have gone meanwhile."""
        one = self.fetched.pop(which % len(self.fetched))
        end = one.start + len(one.payloads)
        tokens = one.tokens[: end * PAGE_SIZE]
        lease = self.cache.acquire(
            one.namespace, tokens, max_tokens=len(tokens), owner=OWNERS[one.namespace]
        )
        self.cache.release_tail(lease)
        first = len(lease.page_ids)
        num_new = min(end - first, self.cache.num_available())
        if first >= one.start and num_new > 0:
            payloads = one.payloads[first - one.start :]
            for page_id, payload in zip(self.cache.extend(lease, num_new), payloads, strict=False):
                self.memory.write(page_id, payload)
            self.cache.publish(lease, tokens[: (first + num_new) * PAGE_SIZE])
        self.cache.release(lease, None)

    @precondition(lambda self: len(self.running) < 3 and len(self.fetched) < 3)
    @rule(
        namespace=NAMESPACES,
        runs=st.lists(st.tuples(st.integers(0, 2), st.integers(4, 9)), min_size=2, max_size=4),
        loss=st.sampled_from(["flush", "restart", "damage", "forget"]),
        which=CHOICES,
        place=CHOICES,
        where=TIERS,
    )
    def lose_and_restore(
        self,
        namespace: bytes,
        runs: list[tuple[int, int]],
        *,
        loss: str,
        which: int,
        place: int,
        where: str,
    ) -> None:
        """The life that pages in tiers are there for, in one step."""
        self.serve(namespace, 0, 0, runs)
        self.listen()
        if self.notes:
            self.write_behind(len(self.notes), where)
        self.disturb(loss, which, place)
        self.cache.flush()
        self.listen()
        self.fetch(len(self.known) - 1, where, is_quick=True)

    # What happens now and then: each of it is undone by much else, so that one rule has it all

    @rule(
        what=st.sampled_from(["flush", "forget", "damage", "quota", "time", "restart"]),
        which=CHOICES,
        place=CHOICES,
    )
    def disturb(self, what: str, which: int, place: int) -> None:
        match what:
            case "flush":
                self.cache.flush(("one", "two", None)[which % 3])
            case "forget":
                self.forget(which)
            case "damage":
                self.damage(which, place)
            case "quota":
                self.cache.set_quota(("one", "two")[which % 2], (None, None, 5, 8)[place % 4])
            case "time":
                self.now_ns += place * 100_000_000
            case "restart":
                if which % 2:  # else it is killed
                    self.disk.close()
                self.begin()

    # Invariants, after every step

    @invariant()
    def the_cache_is_sound(self) -> None:
        self.cache.check_invariants()

    @invariant()
    def every_cached_page_holds_its_tokens(self) -> None:
        for namespace, prefix, page_id in cached_pages(self.cache):
            num_slots = (len(prefix) - 1) % PAGE_SIZE + 1
            expected = page_of(namespace, prefix, page_size=PAGE_SIZE)
            assert self.memory.read(page_id, num_slots) == expected

    @invariant()
    def every_running_sequence_still_has_its_tokens(self) -> None:
        for sequence in self.running:
            self.check_pages_of(sequence)

    @invariant()
    def what_was_announced_is_what_the_tree_has(self) -> None:
        """Every second step, so that a page may leave and come back in between."""
        self.num_steps += 1
        if self.num_steps % 2:
            return
        self.listen()
        assert self.announced == self.present()

    # Verbs of the rules

    def listen(self) -> None:
        """Takes the notes for the tiers, and for other replicas: what full pages there are. Of more
        notes than pages the oldest are dropped."""
        stored, removed = self.cache.take_stored(), self.cache.take_removed()
        self.notes += stored
        self.announced |= {note.identity for note in stored}
        self.announced -= set(removed)
        if max(len(stored), len(removed)) == NUM_PAGES:
            self.announced = self.present()

    def present(self) -> set[bytes]:
        return {
            self.identity(namespace, prefix)
            for namespace, prefix, _ in cached_pages(self.cache)
            if len(prefix) % PAGE_SIZE == 0
        }

    def forget(self, which: int) -> None:
        identities = sorted(self.prefixes)
        chosen = identities[which % len(identities) :][:3] if identities else []
        tier = (self.host, self.disk)[which % 2]
        tier.forget(None if which % 5 == 0 else chosen)

    def damage(self, which: int, place: int) -> None:
        """Something happens to the files of the folder, to each something else."""
        files = sorted(path for path in self.folder.rglob("*") if path.is_file())
        for number, path in enumerate(files, start=which):
            content, times = bytearray(path.read_bytes()), path.stat()
            if number % 5 == 0 or not content:
                content = content[: place * len(content) // 100]
            elif number % 5 < 4:  # what comes first names the page, what comes last is its content
                content[(-1 - place, place)[number % 2] % len(content)] ^= 1 << number % 8
            path.write_bytes(content)
            # As the disk would do it, and so that no run differs from another.
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def tiers(self, names: str) -> list[PageTier]:
        found: dict[str, PageTier] = {"host": self.host, "disk": self.disk}
        return [found[name] for name in names.split(" and ")]

    def pick(self, which: int) -> Sequence:
        return self.running[which % len(self.running)]

    def compose(self, known: int, kept: int, runs: list[tuple[int, int]]) -> Prefix:
        """The beginning of an earlier sequence and something else after it."""
        _, base = self.known[known % len(self.known)]
        tokens = list(base[: kept % (len(base) + 1)])
        tokens += [symbol for symbol, length in runs for _ in range(length)]
        return tuple((tokens or [0])[:MAX_TOKENS])

    def identity(self, namespace: bytes, prefix: Prefix) -> bytes:
        """Of the full page in which the prefix ends."""
        root = tenant_root(KV_ROOT, namespace)
        return list(page_identities(root, prefix, page_size=PAGE_SIZE))[-1]

    def note_prefixes(self, namespace: bytes, tokens: Prefix) -> None:
        root = tenant_root(KV_ROOT, namespace)
        for index, identity in enumerate(page_identities(root, tokens, page_size=PAGE_SIZE)):
            self.prefixes[identity] = namespace, tokens[: (index + 1) * PAGE_SIZE]

    def expected(self, identity: bytes) -> bytes:
        namespace, prefix = self.prefixes[identity]
        return page_of(namespace, prefix, page_size=PAGE_SIZE)

    def check_pages_of(self, sequence: Sequence) -> None:
        """All that is computed, and the tail that is to be copied."""
        for position in range(sequence.num_computed):
            page_id = sequence.lease.page_ids[position // PAGE_SIZE]
            content = self.memory.read(page_id, position % PAGE_SIZE + 1)
            assert content.endswith(slot_of(sequence.namespace, sequence.tokens[: position + 1]))
        if (tail := sequence.lease.tail) is not None:
            prefix = sequence.tokens[: sequence.lease.num_cached_tokens]
            expected = page_of(sequence.namespace, prefix, page_size=PAGE_SIZE)
            assert self.memory.read(tail.page_id, tail.num_tokens) == expected

    def copy_tail(self, sequence: Sequence) -> None:
        if (tail := sequence.lease.tail) is None:
            return
        target = sequence.lease.page_ids[sequence.num_computed // PAGE_SIZE]
        self.memory.write(target, self.memory.read(tail.page_id, tail.num_tokens))
        sequence.num_computed += tail.num_tokens
        self.cache.release_tail(sequence.lease)


TestCacheAndTiers = pytest.mark.timeout(60)(CacheAndTiersMachine.TestCase)
TestCacheAndTiers.settings = settings(
    max_examples=60,
    stateful_step_count=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
