"""One fetch of pages from the lower tiers: what is wanted, what came of it, how it is carried out.

A Fetch is filled by the fetch thread and emptied by the engine's loop; `is_done` is set last.
TierFetcher belongs to the fetch thread.
"""

import enum
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from prefix_cache.identity import page_identities, tenant_root
from prefix_cache.tiers.tier import PageKey, PageTier, TierLabel
from runtime.cost_gate import CostGate
from runtime.kv_codec import KvCodec, Payload
from runtime.page_buffers import PageBuffers
from runtime.page_io import PageBytes
from runtime.step_budget import PrefillEstimate

# Taken from a tier at a time: the loop takes a chunk while the next one comes, what came before a
# deadline is used, and a cancelled fetch ends soon.
CHUNK_BYTES = 8 * 1024 * 1024
# A tier that was too slow is measured again with so many pages.
PROBE_PAGES = 4


class Decision(enum.StrEnum):
    """What became of pages that a tier might have had."""

    FETCHED = "fetched"
    TOO_SLOW = "too_slow"
    NOTHING_THERE = "nothing_there"
    TOO_SMALL = "too_small"
    DOWN = "down"
    TIMED_OUT = "timed_out"
    BUSY = "busy"


@dataclass(frozen=True, slots=True)
class TierReport:
    """What was decided about one tier. `estimate_ns` is what the transfer was expected to take,
    `compute_ns` what computing the pages would (None = not known yet)."""

    tier: TierLabel
    decision: Decision
    num_pages: int = 0
    num_bytes: int = 0
    elapsed_ns: int = 0
    estimate_ns: float = 0.0
    compute_ns: float | None = None


@dataclass(eq=False, slots=True)
class TierSource:
    """A tier, what it costs, and what was decided about it so far."""

    tier: PageTier
    gate: CostGate = field(default_factory=CostGate)
    num_declined: int = 0
    num_timed_out: int = 0


@dataclass(eq=False, slots=True)
class Fetch:
    """Pages [start_page, end_page) of a sequence. `token_ids` fill all pages to the last one.

    `num_fetched` of them came so far; `chunks` are those that the loop has not taken yet, page
    after page.
    """

    namespace: bytes
    owner: str
    token_ids: Sequence[int]
    start_page: int
    end_page: int
    page_size: int
    prefill: PrefillEstimate | None
    num_fetched: int = 0
    chunks: deque[tuple[TierLabel, PageBytes]] = field(default_factory=deque)
    reports: list[TierReport] = field(default_factory=list)
    identities: list[bytes] = field(default_factory=list)
    asked: TierLabel | None = None
    is_done: bool = False
    is_cancelled: bool = False
    _has_ended: threading.Event = field(default_factory=threading.Event)

    @property
    def num_pages(self) -> int:
        """Wanted."""
        return self.end_page - self.start_page

    def num_common_pages(self, namespace: bytes, token_ids: Sequence[int]) -> int:
        """How many pages another sequence begins with as this one does."""
        if namespace != self.namespace:
            return 0
        num_pages = min(self.end_page, len(token_ids) // self.page_size)
        for page in range(num_pages):
            start, end = page * self.page_size, (page + 1) * self.page_size
            if self.token_ids[start:end] != token_ids[start:end]:
                return page
        return num_pages

    def compute_ns(self, first: int, num_pages: int) -> float | None:
        """What computing pages [first, first + num_pages) would take; None where not known."""
        if self.prefill is None:
            return None
        start, num_tokens = first * self.page_size, num_pages * self.page_size
        return self.prefill.elapsed_ns(start=start, num_tokens=num_tokens)

    def keys(self, root: bytes) -> list[PageKey]:
        """Those of the pages that are wanted."""
        tokens = self.token_ids[: self.end_page * self.page_size]
        chain = page_identities(tenant_root(root, self.namespace), tokens, page_size=self.page_size)
        identities = list(chain)[self.start_page :]
        return [
            PageKey(identity, self._pack(page))
            for page, identity in enumerate(identities, start=self.start_page)
        ]

    def finish(self) -> None:
        self.is_done = True
        self._has_ended.set()

    def wait(self, timeout_s: float) -> bool:
        """Whether it is done, at the latest after so long."""
        return self._has_ended.wait(timeout_s)

    def _pack(self, page: int) -> bytes:
        tokens = self.token_ids[page * self.page_size : (page + 1) * self.page_size]
        return struct.pack(f">{self.page_size}I", *tokens)


KeepAbove = Callable[[Fetch, int, Sequence[PageKey], Sequence[Payload]], None]


class TierFetcher:
    """Asks the tiers in their order; what one lacks the next may have.

    `keep_above(fetch, index, keys, payloads)`: what tier `index` gave, the faster may keep.
    `ring` is called when pages have come and when a fetch is done. `measure_later` is given what
    measures a slow tier again, which must keep no fetch waiting.
    """

    def __init__(
        self,
        sources: Sequence[TierSource],
        codec: KvCodec,
        *,
        buffers: PageBuffers,
        root: bytes,
        keep_above: KeepAbove,
        ring: Callable[[], None],
        measure_later: Callable[[Callable[[], None]], object],
        clock_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._sources = sources
        self._codec = codec
        self._buffers = buffers
        self._root = root
        self._keep_above = keep_above
        self._ring = ring
        self._measure_later = measure_later
        self._clock_ns = clock_ns

    def run(self, fetch: Fetch) -> None:
        """Fills the fetch; never raises for what a tier has or lacks."""
        slow: list[TierSource] = []
        keys: list[PageKey] = []
        try:
            keys = fetch.keys(self._root) if not fetch.is_cancelled else []
            fetch.identities = [key.identity for key in keys]
            for index, source in enumerate(self._sources):
                num_there = fetch.num_fetched
                if num_there == len(keys) or fetch.is_cancelled:
                    break
                report = self._ask(index, source, fetch, keys[num_there:])
                fetch.reports.append(report)
                if report.decision in (Decision.TOO_SLOW, Decision.TOO_SMALL):
                    source.num_declined += 1
                    slow.append(source)
        finally:
            fetch.finish()
            self._ring()
        if any(source.gate.is_stale() for source in slow):
            self._measure_later(lambda: self._measure_again(slow, keys))

    def probe(self, fetch: Fetch) -> None:
        """Measures the tiers with the first of these pages; nobody waits for them. From any
        thread."""
        self._measure_again(self._sources, fetch.keys(self._root))

    def _ask(
        self, index: int, source: TierSource, fetch: Fetch, keys: Sequence[PageKey]
    ) -> TierReport:
        tier, gate = source.tier, source.gate
        fetch.asked = tier.label
        first = fetch.end_page - len(keys)
        compute_ns = fetch.compute_ns(first, len(keys))
        if not tier.is_up:
            return TierReport(tier.label, Decision.DOWN)
        if compute_ns is not None and gate.lookup_ns >= compute_ns:
            return TierReport(tier.label, Decision.TOO_SMALL, compute_ns=compute_ns)
        start_ns = self._clock_ns()
        num_there = self._look_up(source, keys)
        if num_there == 0:
            elapsed_ns = self._clock_ns() - start_ns
            return TierReport(tier.label, Decision.NOTHING_THERE, elapsed_ns=elapsed_ns)
        num_bytes = num_there * self._codec.payload_bytes
        estimate_ns = gate.transfer_ns(num_bytes)
        compute_ns = fetch.compute_ns(first, num_there)
        decision, num_pages = Decision.TOO_SLOW, 0
        if compute_ns is None or estimate_ns < compute_ns:
            num_pages = self._transfer(index, source, fetch, keys[:num_there])
            decision = Decision.FETCHED if num_pages else Decision.NOTHING_THERE
            num_bytes = num_pages * self._codec.payload_bytes
        return TierReport(
            tier.label,
            decision,
            num_pages=num_pages,
            num_bytes=num_bytes,
            elapsed_ns=self._clock_ns() - start_ns,
            estimate_ns=estimate_ns,
            compute_ns=compute_ns,
        )

    def _look_up(self, source: TierSource, keys: Sequence[PageKey]) -> int:
        start_ns = self._clock_ns()
        num_there = source.tier.count_leading(keys)
        source.gate.observe_lookup(self._clock_ns() - start_ns)
        return num_there

    def _transfer(
        self, index: int, source: TierSource, fetch: Fetch, keys: Sequence[PageKey]
    ) -> int:
        """Chunk by chunk, up to the first page that is not there after all -> how many came."""
        start_ns = self._clock_ns()
        num_pages, num_wanted = 0, self._buffers.num_pages
        while num_pages < len(keys) and not fetch.is_cancelled:
            wanted = keys[num_pages : num_pages + num_wanted]
            payloads = self._right_ones(source, source.tier.fetch(wanted))
            if payloads:
                num_pages += len(payloads)
                self._deliver(fetch, source.tier.label, payloads)
                self._keep_above(fetch, index, wanted[: len(payloads)], payloads)
            if len(payloads) < len(wanted):
                break
        num_bytes = num_pages * self._codec.payload_bytes
        source.gate.observe_transfer(num_bytes, self._clock_ns() - start_ns)
        return num_pages

    def _deliver(self, fetch: Fetch, tier: TierLabel, payloads: Sequence[Payload]) -> None:
        pages = self._buffers.take(len(payloads))
        self._codec.decode(payloads, pages)
        fetch.num_fetched += len(pages)
        fetch.chunks.append((tier, pages))
        self._ring()

    def _right_ones(self, source: TierSource, payloads: Sequence[Payload]) -> Sequence[Payload]:
        """Up to the first that the codec cannot have written."""
        for place, payload in enumerate(payloads):
            if len(payload) != self._codec.payload_bytes:
                source.tier.counts.reject("payload")
                return payloads[:place]
        return payloads

    def _measure_again(self, sources: Sequence[TierSource], keys: Sequence[PageKey]) -> None:
        for source in sources:
            if not source.gate.is_stale() or not source.tier.is_up:
                continue
            num_there = self._look_up(source, keys[:PROBE_PAGES])
            if num_there:
                start_ns = self._clock_ns()
                num_pages = len(source.tier.fetch(keys[:num_there]))
                num_bytes = num_pages * self._codec.payload_bytes
                source.gate.observe_transfer(num_bytes, self._clock_ns() - start_ns)
