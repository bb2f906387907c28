"""The lower tiers of a runtime and the two threads that alone call them: one fetches, one stores.

Owned by the engine's loop, which never waits for a tier: both queues are bounded, and what does
not fit is refused. The end of a job rings the loop's doorbell.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol

from prefix_cache.identity import page_identity, tenant_root
from prefix_cache.tiers.tier import PageKey, PageTier, SharedByModels, StoredPage, TierLabel
from runtime.cache_messages import TierUse
from runtime.cost_gate import CostGate
from runtime.kv_codec import KvCodec, Payload
from runtime.page_buffers import PageBuffers
from runtime.page_io import PageBytes
from runtime.tier_fetch import CHUNK_BYTES, Decision, Fetch, TierFetcher, TierReport, TierSource

logger = logging.getLogger(__name__)

# Pages on their way, in each direction: a prompt of the longest context, and a few.
MAX_FETCH_BYTES = 512 * 1024 * 1024
MAX_STORE_BYTES = 64 * 1024 * 1024
# A transfer of so many pages says what a tier's bytes cost.
FULL_PAGES = 4
# Other models whose pages are looked for, to explain a miss.
MAX_OTHER_ROOTS = 32
# Of a token id, and of a page's name, that wait in a queue.
QUEUED_TOKEN_BYTES = 8
QUEUED_NAME_BYTES = 100


class JobThread:
    """Runs jobs one after the other. A job that raises is logged, and the next one runs.

    At no lower a priority than the engine's loop: a thread that waits for a processor may hold the
    interpreter's lock, which the loop then waits for.
    """

    def __init__(self, name: str, *, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._jobs: deque[tuple[Callable[[], None], int]] = deque()
        self._num_bytes = 0
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def num_free_bytes(self) -> int:
        return self._max_bytes - self._num_bytes

    def add(self, job: Callable[[], None], *, num_bytes: int = 0) -> bool:
        """False where `num_bytes` more do not fit. A job that is larger than all is taken when
        there is no other."""
        with self._changed:
            if self._is_closed or (self._num_bytes and num_bytes > self.num_free_bytes):
                return False
            self._jobs.append((job, num_bytes))
            self._num_bytes += num_bytes
            self._changed.notify_all()
            return True

    def wait_for_room(self, num_bytes: int, *, timeout_s: float) -> None:
        """Until so much fits, at the latest after that time."""
        with self._changed:
            self._changed.wait_for(lambda: self.num_free_bytes >= num_bytes, timeout_s)

    def close(self, *, timeout_s: float) -> bool:
        """Takes no more jobs; those it has are done within that time, or dropped. Whether the
        thread has ended: a tier may keep it longer."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join(timeout_s)
        with self._changed:
            self._jobs.clear()
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (entry := self._next()) is not None:
            job, num_bytes = entry
            try:
                job()
            except Exception:
                logger.exception("a job of the thread %s failed", self._thread.name)
            with self._changed:
                self._num_bytes -= num_bytes
                self._changed.notify_all()

    def _next(self) -> tuple[Callable[[], None], int] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._is_closed)
            return self._jobs.popleft() if self._jobs else None


class PageDirectory(Protocol):
    """Who has which page on its device; prefix_cache.tiers.directory.Directory is one."""

    def announce(self, stored: Sequence[bytes], removed: Sequence[bytes] = ()) -> None: ...


class TierSet:
    """`tiers` in the order in which they are asked, the fastest first. `root` is that of stored
    pages (prefix_cache.identity.stored_root); `ring` may be called from any thread."""

    def __init__(
        self,
        tiers: Sequence[PageTier],
        *,
        codec: KvCodec,
        root: bytes,
        ring: Callable[[], None],
        directory: PageDirectory | None = None,
    ) -> None:
        full_bytes = FULL_PAGES * codec.payload_bytes
        self._sources = [TierSource(tier, CostGate(full_bytes=full_bytes)) for tier in tiers]
        self._codec = codec
        self.root = root
        self._ring = ring
        self._directory = directory
        self._num_forgotten = 0
        self._num_carried_out = 0  # of these, by the store thread
        self._is_probing = False
        self._is_closed = False
        num_pages = max(1, CHUNK_BYTES // codec.page_bytes)
        self._buffers = PageBuffers(num_pages, codec.page_bytes)
        self._fetching = JobThread("tier fetch", max_bytes=MAX_FETCH_BYTES)
        self._storing = JobThread("tier store", max_bytes=MAX_STORE_BYTES)
        self._fetcher = TierFetcher(
            self._sources,
            codec,
            buffers=self._buffers,
            root=root,
            keep_above=self._keep_above,
            ring=self._ring_loop,
            measure_later=self._storing.add,
        )

    @property
    def num_free_store_bytes(self) -> int:
        return self._storing.num_free_bytes

    @property
    def page_bytes(self) -> int:
        """Of a page as the device has it."""
        return self._codec.page_bytes

    def busy(self) -> TierReport:
        """Too much is on its way already."""
        return TierReport(self._sources[0].tier.label, Decision.BUSY)

    def warm(self) -> None:
        """Has memory ready for the first fetch."""
        self._storing.add(self._buffers.warm)

    def give_back(self, pages: PageBytes) -> None:
        """A chunk of a fetch whose bytes nobody needs any more."""
        self._buffers.give_back(pages)

    def prepare(self, job: Callable[[], None]) -> None:
        """Has a tier begin its work before anything is stored."""
        self._storing.add(job)

    def may_have_pages(self) -> bool:
        """False where all tiers are known to be empty; disk and Redis may be shared."""
        return any(source.tier.label != "host" or source.tier.num_pages for source in self._sources)

    def refusal(self, compute_ns: float | None) -> TierReport | None:
        """Why no tier needs to be asked about pages that take so long to compute, or None: even
        a free transfer would not make up for the lookup."""
        if compute_ns is None or any(one.gate.lookup_ns < compute_ns for one in self._sources):
            return None
        for source in self._sources:
            source.num_declined += 1
        first = self._sources[0].tier.label
        return TierReport(first, Decision.TOO_SMALL, compute_ns=compute_ns)

    def start(self, fetch: Fetch) -> TierReport | None:
        """Begins it; or says that too much is on its way already, or that pages are to be forgotten
        which are there still."""
        if self._num_carried_out < self._num_forgotten:
            return TierReport(self._sources[0].tier.label, Decision.BUSY)
        num_bytes = fetch.num_pages * self._codec.payload_bytes
        if self._fetching.add(lambda: self._fetcher.run(fetch), num_bytes=num_bytes):
            return None
        return self.busy()

    def probe(self, fetch: Fetch) -> None:
        """Measures the tiers anew with a few of these pages, where that is due."""
        if self._is_probing or not any(source.gate.is_stale() for source in self._sources):
            return

        def run() -> None:
            try:
                self._fetcher.probe(fetch)
            finally:
                self._is_probing = False

        self._is_probing = True
        if not self._storing.add(run):
            self._is_probing = False

    def count(self, fetch: Fetch) -> Future[dict[TierLabel, int]]:
        """How many of the pages each tier has, behind those that the tiers before it have."""
        counted: Future[dict[TierLabel, int]] = Future()

        def run() -> None:
            try:
                counted.set_result(self._count(fetch.keys(self.root)))
            except Exception as error:
                counted.set_exception(error)

        if not self._fetching.add(run):
            counted.set_result({})
        return counted

    def has_of_other_model(self, namespace: bytes, first_page: Sequence[int]) -> Future[bool]:
        """Whether a tier has a page of these tokens that another model has left there."""
        looked: Future[bool] = Future()

        def run() -> None:
            try:
                looked.set_result(self._is_of_other_model(namespace, first_page))
            except Exception as error:
                looked.set_exception(error)

        if not self._fetching.add(run):
            looked.set_result(False)
        return looked

    def store(self, keys: Sequence[PageKey], pages: PageBytes) -> bool:
        """Has all tiers keep the pages; False where the queue is full. pages: [P, page_bytes]."""

        def run() -> None:
            payloads = self._codec.encode(pages)
            stored = [
                StoredPage(key, payload)
                for key, payload in zip(keys, payloads, strict=True)
                if payload is not None
            ]
            self._count_dropped("not_finite", len(keys) - len(stored))
            self._store(self._sources, stored)
            self._ring_loop()

        return self._storing.add(run, num_bytes=pages.nbytes)

    def touch(self, prefix: Fetch) -> None:
        """Tells all tiers that these pages were used; nothing where the queue is full."""

        def run() -> None:
            identities = [key.identity for key in prefix.keys(self.root)]
            for source in self._sources:
                if source.tier.is_up:
                    source.tier.touch(identities)

        self._storing.add(run, num_bytes=QUEUED_TOKEN_BYTES * len(prefix.token_ids))

    @property
    def has_directory(self) -> bool:
        return self._directory is not None

    def announce(self, stored: Sequence[bytes], removed: Sequence[bytes]) -> bool:
        """Tells other runtimes what this one's device has and has no more; False where that cannot
        be said now."""
        directory = self._directory
        return directory is not None and self._storing.add(
            lambda: directory.announce(stored, removed),
            num_bytes=QUEUED_NAME_BYTES * (len(stored) + len(removed)),
        )

    def wait_for_room(self, num_bytes: int, *, timeout_s: float) -> None:
        """Until so much can be stored, at the latest after that time."""
        self._storing.wait_for_room(num_bytes, timeout_s=timeout_s)

    def forget(self, identities: Sequence[bytes] | None) -> None:
        """Drops pages, also those that wait to be stored; None = all."""
        self._num_forgotten += 1

        def run() -> None:
            try:
                for source in self._sources:
                    source.tier.forget(identities)
            finally:
                self._num_carried_out += 1

        self._storing.add(run)

    def timed_out(self, fetch: Fetch) -> TierReport:
        """Those that wait for the fetch wait no longer."""
        label = fetch.asked or self._sources[0].tier.label
        for source in self._sources:
            source.num_timed_out += source.tier.label == label
        return TierReport(label, Decision.TIMED_OUT)

    def note_dropped(self, reason: str, num_pages: int) -> None:
        """Pages that should have been stored are not, in no tier."""
        self._count_dropped(reason, num_pages)

    def uses(self) -> tuple[TierUse, ...]:
        return tuple(map(_use, self._sources))

    def close(self, *, timeout_s: float) -> None:
        """Stores what waits for it, within that time; then the tiers are closed, but for those
        that a thread is still in."""
        until_s = time.monotonic() + timeout_s
        self._is_closed = True
        has_stored = self._storing.close(timeout_s=timeout_s)
        has_fetched = self._fetching.close(timeout_s=max(0.0, until_s - time.monotonic()))
        if has_stored and has_fetched:
            for source in self._sources:
                source.tier.close()

    def _ring_loop(self) -> None:
        """Nobody listens any more after close(), which a thread may outlast."""
        if not self._is_closed:
            self._ring()

    def _count(self, keys: Sequence[PageKey]) -> dict[TierLabel, int]:
        counts: dict[TierLabel, int] = {}
        num_found = 0
        for source in self._sources:
            if source.tier.is_up and num_found < len(keys):
                counts[source.tier.label] = source.tier.count_leading(keys[num_found:])
                num_found += counts[source.tier.label]
        return {label: num_pages for label, num_pages in counts.items() if num_pages}

    def _is_of_other_model(self, namespace: bytes, first_page: Sequence[int]) -> bool:
        for tier in (source.tier for source in self._sources):
            if not isinstance(tier, SharedByModels):
                continue
            for root in tier.other_roots()[:MAX_OTHER_ROOTS]:
                if tier.holds(root, page_identity(tenant_root(root, namespace), first_page)):
                    return True
        return False

    def _keep_above(
        self, fetch: Fetch, index: int, keys: Sequence[PageKey], payloads: Sequence[Payload]
    ) -> None:
        """What came from a slower tier is kept in the faster ones, unless it is forgotten."""
        num_forgotten = self._num_forgotten
        # In this order: who forgets cancels all fetches first, then counts.
        if index == 0 or fetch.is_cancelled:
            return

        def run() -> None:
            if num_forgotten == self._num_forgotten:
                stored = [StoredPage(*pair) for pair in zip(keys, payloads, strict=True)]
                self._store(self._sources[:index], stored)

        self._storing.add(run, num_bytes=len(keys) * self._codec.payload_bytes)

    def _store(self, sources: Sequence[TierSource], pages: Sequence[StoredPage]) -> None:
        for source in sources:
            if source.tier.is_up:
                source.tier.store(pages)
            else:
                source.tier.counts.drop("down", num_pages=len(pages))

    def _count_dropped(self, reason: str, num_pages: int) -> None:
        for source in self._sources if num_pages else ():
            source.tier.counts.drop(reason, num_pages=num_pages)


def _use(source: TierSource) -> TierUse:
    tier, counts = source.tier, source.tier.counts
    return TierUse(
        name=tier.label,
        is_up=tier.is_up,
        num_pages=tier.num_pages,
        num_bytes=tier.num_bytes,
        max_bytes=tier.max_bytes,
        num_found=counts.num_found,
        num_missing=counts.num_missing,
        num_fetched=counts.num_fetched,
        num_stored=counts.num_stored,
        fetched_bytes=counts.fetched_bytes,
        stored_bytes=counts.stored_bytes,
        num_declined=source.num_declined,
        num_failures=counts.num_failures + source.num_timed_out,
        num_openings=counts.num_openings,
        num_rejected=dict(counts.rejected),
        num_dropped=dict(counts.dropped),
    )
