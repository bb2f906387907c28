"""One fetch, tier by tier: what is asked, what is too slow, what is measured again."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from prefix_cache.identity import page_identities, tenant_root
from prefix_cache.tiers.tier import PageKey, StoredPage, TierLabel
from runtime.cost_gate import STALE_NS, CostGate
from runtime.kv_codec import Payload, RawCodec
from runtime.page_buffers import PageBuffers
from runtime.step_budget import PrefillEstimate
from runtime.tier_fetch import CHUNK_BYTES, PROBE_PAGES, Decision, Fetch, TierFetcher, TierSource
from tests.memory_tier import MemoryTier

PAGE_SIZE, PAGE_BYTES, ROOT = 4, 64, b"root"
TOKENS = list(range(40))


class Clock:
    now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


class SlowTier(MemoryTier):
    """Each call takes its time of a clock."""

    def __init__(self, clock: Clock, label: TierLabel = "disk") -> None:
        super().__init__(label)
        self._clock = clock
        self.lookup_ns = self.byte_ns = 0

    def count_leading(self, keys: Sequence[PageKey]) -> int:
        self._clock.now_ns += self.lookup_ns
        return super().count_leading(keys)

    def fetch(self, keys: Sequence[PageKey]) -> list[bytes | memoryview]:
        payloads = super().fetch(keys)
        self._clock.now_ns += self.byte_ns * sum(map(len, payloads))
        return payloads


class Bench:
    """Some tiers that have the first pages of TOKENS, and a fetcher over them."""

    def __init__(self, *num_pages: int, page_bytes: int = PAGE_BYTES) -> None:
        self.clock = Clock()
        labels: tuple[TierLabel, ...] = ("disk", "redis")
        self.tiers = [SlowTier(self.clock, label) for label in labels[: len(num_pages)]]
        self.sources = [TierSource(tier, CostGate(self.clock)) for tier in self.tiers]
        self.kept: list[tuple[int, int]] = []
        self.num_rings = 0
        self.later: list[Callable[[], None]] = []
        self.fetcher = TierFetcher(
            self.sources,
            RawCodec(page_bytes),
            buffers=PageBuffers(max(1, CHUNK_BYTES // page_bytes), page_bytes),
            root=ROOT,
            keep_above=self._keep,
            ring=self._ring,
            measure_later=self.later.append,
            clock_ns=self.clock,
        )
        for tier, number in zip(self.tiers, num_pages, strict=True):
            keys = wanted().keys(ROOT)[:number]
            payloads = (bytes([page]) * page_bytes for page in range(number))
            tier.store([StoredPage(*pair) for pair in zip(keys, payloads, strict=True)])

    def run(self, fetch: Fetch) -> list[Decision]:
        self.fetcher.run(fetch)
        return [report.decision for report in fetch.reports]

    def _keep(
        self, _: Fetch, index: int, keys: Sequence[PageKey], payloads: Sequence[Payload]
    ) -> None:
        assert len(keys) == len(payloads)
        self.kept.append((index, len(keys)))

    def _ring(self) -> None:
        self.num_rings += 1


def wanted(start: int = 0, *, token_ns: float | None = None) -> Fetch:
    prefill = PrefillEstimate(token_ns, 0.0) if token_ns is not None else None
    return Fetch(b"tenant", "", TOKENS, start, 10, PAGE_SIZE, prefill)


def pages_of(fetch: Fetch) -> list[int]:
    return [int(page[0]) for _, pages in fetch.chunks for page in pages]


def test_keys_are_the_chain_of_the_tenant() -> None:
    keys = wanted(7).keys(ROOT)
    chain = page_identities(tenant_root(ROOT, b"tenant"), TOKENS, page_size=PAGE_SIZE)
    assert [key.identity for key in keys] == list(chain)[7:]
    assert keys[0].tokens == b"".join(token.to_bytes(4, "big") for token in TOKENS[28:32])


def test_pages_come_in_order_and_the_loop_is_told() -> None:
    bench, fetch = Bench(6), wanted(2)
    assert bench.run(fetch) == [Decision.FETCHED]
    assert pages_of(fetch) == [2, 3, 4, 5]
    assert fetch.is_done
    assert fetch.wait(0)
    assert bench.num_rings == 2


def test_the_next_tier_is_asked_for_what_the_first_lacks() -> None:
    bench, fetch = Bench(3, 7), wanted()
    assert bench.run(fetch) == [Decision.FETCHED, Decision.FETCHED]
    assert [(label, len(pages)) for label, pages in fetch.chunks] == [("disk", 3), ("redis", 4)]
    assert pages_of(fetch) == list(range(7))
    assert (1, 4) in bench.kept


def test_a_tier_that_gave_all_is_the_last_one_asked() -> None:
    bench = Bench(10, 10)
    assert bench.run(wanted()) == [Decision.FETCHED]
    assert bench.tiers[1].calls == [("store", 10)]


def test_nothing_is_estimated_before_something_was_measured() -> None:
    bench, fetch = Bench(5), wanted()
    bench.tiers[0].byte_ns = 10**9
    assert bench.run(fetch) == [Decision.FETCHED]
    assert fetch.reports[0].compute_ns is None


def test_what_is_slower_than_computing_is_left_there() -> None:
    """A page of 4 tokens takes 400 ns to compute and 64 bytes to fetch."""
    bench = Bench(5)
    bench.tiers[0].byte_ns = 7
    bench.run(wanted())
    fetch = wanted(token_ns=100_000)
    assert bench.run(fetch) == [Decision.FETCHED]
    bench.sources[0].gate.observe_lookup(0)
    fetch = wanted(token_ns=100)
    bench.sources[0].gate.observe_transfer(1, 7)
    for _ in range(40):
        bench.sources[0].gate.observe_lookup(0)
    assert bench.run(fetch) == [Decision.TOO_SLOW]
    assert not fetch.chunks
    (report,) = fetch.reports
    assert report.compute_ns == 5 * PAGE_SIZE * 100
    assert report.estimate_ns > report.compute_ns
    assert bench.sources[0].num_declined == 1


def test_what_a_lookup_takes_longer_for_is_not_looked_up() -> None:
    bench = Bench(5)
    bench.sources[0].gate.observe_lookup(5_000)
    assert bench.run(wanted(token_ns=100)) == [Decision.TOO_SMALL]
    assert bench.tiers[0].num_calls("count") == 0
    assert bench.run(wanted(token_ns=1_000)) == [Decision.FETCHED]


def test_a_slow_tier_is_measured_again_after_a_while_with_few_pages() -> None:
    bench = Bench(8)
    bench.sources[0].gate.observe_lookup(10**9)
    assert bench.run(wanted(token_ns=1)) == [Decision.TOO_SMALL]
    assert bench.tiers[0].num_calls("count") == 0
    bench.clock.now_ns += STALE_NS + 1
    fetch = wanted(token_ns=1)
    assert bench.run(fetch) == [Decision.TOO_SMALL]
    assert not fetch.chunks
    assert bench.tiers[0].num_calls("count") == 0  # a fetch that comes next must not wait for it
    (measure,) = bench.later
    measure()
    assert bench.tiers[0].calls[1:] == [("count", PROBE_PAGES), ("fetch", PROBE_PAGES)]
    assert bench.sources[0].gate.lookup_ns < 10**9
    bench.fetcher.probe(wanted())
    assert bench.tiers[0].num_calls("fetch") == 1


def test_a_cancelled_fetch_asks_nobody() -> None:
    bench, fetch = Bench(5), wanted()
    fetch.is_cancelled = True
    assert bench.run(fetch) == []
    assert fetch.is_done
    assert bench.tiers[0].num_calls("count") == 0


def test_large_fetches_come_in_parts_and_end_when_they_are_cancelled() -> None:
    bench, fetch = Bench(10, page_bytes=CHUNK_BYTES // 3), wanted()

    def cancel(
        fetch: Fetch, index: int, keys: Sequence[PageKey], payloads: Sequence[Payload]
    ) -> None:
        fetch.is_cancelled = True
        bench._keep(fetch, index, keys, payloads)

    assert bench.run(wanted()) == [Decision.FETCHED]
    assert [number for _, number in bench.kept] == [3, 3, 3, 1]
    TierFetcher(
        bench.sources,
        RawCodec(CHUNK_BYTES // 3),
        buffers=PageBuffers(3, CHUNK_BYTES // 3),
        root=ROOT,
        keep_above=cancel,
        ring=bench._ring,
        measure_later=bench.later.append,
        clock_ns=bench.clock,
    ).run(fetch)
    assert fetch.num_fetched == 3


def test_a_tier_that_fails_in_a_way_of_its_own_leaves_nobody_waiting() -> None:
    bench, fetch = Bench(5), wanted()
    bench.tiers[0].count_leading = None  # type: ignore[assignment, method-assign]
    with pytest.raises(TypeError):
        bench.run(fetch)
    assert fetch.is_done
    assert bench.num_rings == 1


def test_common_pages_are_counted_within_one_tenant() -> None:
    fetch = wanted(3)
    assert fetch.num_common_pages(b"tenant", TOKENS) == 10
    assert fetch.num_common_pages(b"tenant", [*TOKENS[:9], 99, *TOKENS[10:]]) == 2
    assert fetch.num_common_pages(b"tenant", TOKENS[:15]) == 3
    assert fetch.num_common_pages(b"another", TOKENS) == 0


def test_pages_are_arrays_of_their_own() -> None:
    bench, fetch = Bench(2), wanted()
    bench.run(fetch)
    fetch.chunks[0][1][:] = 255
    assert np.frombuffer(next(iter(bench.tiers[0].pages.values()))[1], np.uint8)[0] == 0
