"""When pages are copied for the lower tiers, which, and what becomes of the others."""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

import numpy as np
import pytest

from prefix_cache import PrefixCache
from runtime import write_behind
from runtime.announcements import SEND_EVERY_NS, Announcements
from runtime.kv_codec import RawCodec
from runtime.page_io import ArrayPageIo, PageBytes
from runtime.tier_threads import TierSet
from runtime.write_behind import IDLE_PIECE_NS, MAX_BATCH, STEP_SHARE, WriteBehind
from tests.memory_tier import MemoryTier

PAGE_SIZE = 4
PAGE_NS = 100_000


class Clock:
    now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


class CostlyPageIo(ArrayPageIo):
    """Each page that is read takes its time."""

    def __init__(self, clock: Clock, num_pages: int, foreign: AbstractSet[int]) -> None:
        arrays = [np.zeros((num_pages, 8), np.uint8) for _ in range(2)]
        super().__init__(arrays, page_axis=0, dtype="bfloat16", foreign_pages=foreign)
        self._clock = clock
        self.batches: list[int] = []

    def read(self, page_ids: Sequence[int]) -> PageBytes:
        self._clock.now_ns += PAGE_NS * len(page_ids)
        self.batches.append(len(page_ids))
        return super().read(page_ids)


class Bench:
    """A cache that remembers what entered it, and a tier."""

    def __init__(self, num_pages: int = 200) -> None:
        self.cache = PrefixCache(num_pages=num_pages, page_size=PAGE_SIZE, identity_root=b"root")
        self.clock = Clock()
        self.foreign: set[int] = set()
        self.page_io: CostlyPageIo | None = CostlyPageIo(self.clock, num_pages, self.foreign)
        self.tier = MemoryTier()
        self.tiers = TierSet([self.tier], codec=RawCodec(16), root=b"root", ring=lambda: None)
        self.behind = WriteBehind(
            self.cache, self.tiers, page_io=lambda: self.page_io, clock_ns=self.clock
        )

    def publish(self, num_pages: int, *, first_token: int = 0) -> None:
        token_ids = [first_token, *range(num_pages * PAGE_SIZE - 1)]
        lease = self.cache.acquire(b"", token_ids, max_tokens=len(token_ids) - 1)
        self.cache.release_tail(lease)
        self.cache.extend(lease, num_pages - len(lease.page_ids))
        self.cache.release(lease, token_ids)

    @property
    def num_copied(self) -> int:
        assert self.page_io is not None
        return sum(self.page_io.batches)

    def dropped(self) -> dict[str, int]:
        (use,) = self.tiers.uses()
        return use.num_dropped


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.tiers.close(timeout_s=10)


def test_an_idle_loop_copies_for_a_bounded_time_and_says_whether_there_is_more(
    bench: Bench,
) -> None:
    bench.publish(120)
    assert bench.behind.idle()
    assert 0.5 * IDLE_PIECE_NS < bench.clock.now_ns <= IDLE_PIECE_NS + MAX_BATCH * PAGE_NS
    while bench.behind.idle():
        pass
    assert bench.num_copied == 120
    bench.tiers.close(timeout_s=10)
    assert bench.tier.num_pages == 120


def test_between_steps_copies_take_a_small_part_of_their_time(bench: Bench) -> None:
    bench.publish(150)
    step_ns, num_steps = 4_000_000, 300
    for _ in range(num_steps):
        bench.behind.after_step(step_ns)
        before_ns = bench.clock.now_ns
        bench.behind.between_steps()
        assert bench.clock.now_ns - before_ns <= 2 * PAGE_NS
    spent = bench.clock.now_ns / (step_ns * num_steps)
    assert 0.5 * STEP_SHARE < spent < 1.1 * STEP_SHARE


def test_a_long_step_is_not_followed_by_a_long_pause(bench: Bench) -> None:
    bench.publish(150)
    bench.behind.after_step(60_000_000_000)
    bench.behind.between_steps()
    assert 0 < bench.clock.now_ns <= write_behind.MAX_CREDIT_NS + MAX_BATCH * PAGE_NS


def test_what_the_tree_gave_up_first_is_counted_and_not_copied(bench: Bench) -> None:
    bench.publish(10)
    bench.behind.take_notes()
    bench.cache.flush()
    bench.publish(3, first_token=9)
    while bench.behind.idle():
        pass
    assert bench.num_copied == 3
    assert bench.dropped() == {"evicted": 10}


def test_foreign_pages_do_not_leave(bench: Bench) -> None:
    bench.publish(4)
    (first, *_) = bench.cache.take_stored()
    bench.publish(4, first_token=9)
    bench.foreign.update(range(200))
    bench.foreign.discard(first.page_id)
    bench.behind.idle()
    assert bench.num_copied == 0
    assert bench.dropped() == {"foreign": 4}


def test_pages_before_there_is_a_way_out_are_counted(bench: Bench) -> None:
    bench.page_io = None
    bench.publish(5)
    assert not bench.behind.idle()
    assert bench.dropped() == {"not_ready": 5}


def test_restored_pages_are_in_a_tier_already(bench: Bench) -> None:
    bench.publish(5)
    identities = bench.cache.identities_of(b"", [0, *range(19)], num_pages=3)
    bench.behind.take_notes(restored=identities)
    assert bench.behind.num_waiting == 2


def test_a_backlog_is_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_behind, "MAX_BACKLOG", 6)
    bench.publish(10)
    bench.behind.take_notes()
    assert bench.behind.num_waiting == 6
    assert bench.dropped() == {"backlog": 4}


def test_nothing_is_copied_while_the_store_thread_has_enough(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.publish(5)
    monkeypatch.setattr(TierSet, "num_free_store_bytes", 0)
    assert not bench.behind.idle()
    assert (bench.num_copied, bench.behind.num_waiting) == (0, 5)


def test_what_was_taken_out_on_purpose_is_no_loss(bench: Bench) -> None:
    bench.publish(5)
    bench.cache.flush()
    bench.publish(2, first_token=9)
    bench.behind.forget()
    bench.behind.idle()
    assert bench.num_copied == 2
    assert bench.dropped() == {}


class FakeDirectory:
    def __init__(self) -> None:
        self.told: list[tuple[set[bytes], set[bytes]]] = []

    def announce(self, stored: Sequence[bytes], removed: Sequence[bytes] = ()) -> None:
        self.told.append((set(stored), set(removed)))


def test_the_directory_is_told_what_became_of_each_page_last() -> None:
    bench, directory = Bench(), FakeDirectory()
    tiers = TierSet(
        [bench.tier], codec=RawCodec(16), root=b"root", ring=lambda: None, directory=directory
    )
    announcements = Announcements(bench.cache, tiers, clock_ns=bench.clock)

    def tell() -> None:
        announcements.note(bench.cache.take_stored(), bench.cache.take_removed())
        announcements.send_due()

    bench.publish(3)
    gone = set(bench.cache.identities_of(b"", [0, *range(11)], num_pages=3))
    bench.publish(2, first_token=9)
    there = set(bench.cache.identities_of(b"", [9, *range(7)], num_pages=2))
    tell()  # too soon
    bench.clock.now_ns = SEND_EVERY_NS
    bench.cache.flush()
    bench.publish(2, first_token=9)
    tell()
    tell()
    tiers.close(timeout_s=10)
    assert directory.told == [(there, gone)]


def test_without_a_directory_nobody_is_told(bench: Bench) -> None:
    assert not bench.tiers.announce([b"x"], [])
