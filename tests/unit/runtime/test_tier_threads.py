"""The two threads of the lower tiers: bounded queues, what is refused, how they end."""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from prefix_cache.tiers.tier import PageKey
from runtime.cost_gate import CostGate
from runtime.kv_codec import Int8Codec, RawCodec
from runtime.tier_fetch import Decision, Fetch
from runtime.tier_threads import (
    FULL_PAGES,
    MAX_STORE_BYTES,
    QUEUED_NAME_BYTES,
    JobThread,
    TierSet,
)
from tests.memory_tier import MemoryTier

WAIT_S = 10.0
KEYS = [PageKey(bytes([page]) * 32, bytes([page]) * 4) for page in range(8)]


class Gate:
    """A job that lasts until it is opened."""

    def __init__(self) -> None:
        self.begun, self._open = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.begun.set()
        assert self._open.wait(WAIT_S)

    def open(self) -> None:
        self._open.set()


@pytest.fixture
def make_thread() -> Iterator[Callable[..., JobThread]]:
    made: list[JobThread] = []

    def make(*, max_bytes: int = 100) -> JobThread:
        made.append(JobThread("test", max_bytes=max_bytes))
        return made[-1]

    yield make
    for thread in made:
        thread.close(timeout_s=WAIT_S)


def run(thread: JobThread, job: Callable[[], None]) -> None:
    done = threading.Event()
    assert thread.add(job)
    assert thread.add(done.set)
    assert done.wait(WAIT_S)


def test_what_does_not_fit_is_refused_until_there_is_room(
    make_thread: Callable[..., JobThread],
) -> None:
    thread, gate = make_thread(), Gate()
    assert thread.add(gate, num_bytes=60)
    assert gate.begun.wait(WAIT_S)
    assert not thread.add(lambda: None, num_bytes=41)
    assert thread.add(lambda: None, num_bytes=40)
    gate.open()
    thread.wait_for_room(100, timeout_s=WAIT_S)
    assert thread.num_free_bytes == 100


def test_what_is_larger_than_all_is_taken_alone(make_thread: Callable[..., JobThread]) -> None:
    thread, gate = make_thread(), Gate()
    assert thread.add(gate, num_bytes=1_000)
    assert not thread.add(lambda: None, num_bytes=1)
    gate.open()
    thread.wait_for_room(100, timeout_s=WAIT_S)
    assert thread.add(lambda: None, num_bytes=1)


def test_a_job_that_fails_is_logged_and_the_next_one_runs(
    make_thread: Callable[..., JobThread], caplog: pytest.LogCaptureFixture
) -> None:
    thread = make_thread()
    ran = threading.Event()
    with caplog.at_level(logging.ERROR):
        assert thread.add(lambda: [].pop(), num_bytes=100)
        run(thread, ran.set)
    assert "a job of the thread test failed" in caplog.text
    assert thread.num_free_bytes == 100


def test_a_closed_thread_does_what_it_has_and_takes_no_more(
    make_thread: Callable[..., JobThread],
) -> None:
    thread, gate, ran = make_thread(), Gate(), threading.Event()
    thread.add(gate)
    thread.add(ran.set)
    gate.open()
    assert thread.close(timeout_s=WAIT_S)
    assert ran.is_set()
    assert not thread.add(lambda: None)


def test_a_thread_that_does_not_end_is_not_waited_for(
    make_thread: Callable[..., JobThread],
) -> None:
    thread, gate, ran = make_thread(), Gate(), threading.Event()
    thread.add(gate)
    assert gate.begun.wait(WAIT_S)
    thread.add(ran.set)
    assert not thread.close(timeout_s=0.01)
    gate.open()
    assert thread.close(timeout_s=WAIT_S)
    assert not ran.is_set()


@pytest.fixture
def tier() -> MemoryTier:
    return MemoryTier()


@pytest.fixture
def tiers(tier: MemoryTier) -> Iterator[TierSet]:
    made = TierSet([tier], codec=RawCodec(16), root=b"root", ring=lambda: None)
    yield made
    made.close(timeout_s=WAIT_S)


def pages(number: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.arange(16 * number, dtype=np.uint8).reshape(number, 16)


def wanted(num_pages: int = 4) -> Fetch:
    return Fetch(b"", "", list(range(4 * num_pages)), 0, num_pages, 4, None)


def test_pages_that_were_given_are_in_the_tier(tiers: TierSet, tier: MemoryTier) -> None:
    assert tiers.store(KEYS[:3], pages(3))
    tiers.close(timeout_s=WAIT_S)
    assert tier.pages[KEYS[1].identity] == (KEYS[1].tokens, bytes(range(16, 32)))
    assert tier.is_closed


def test_a_full_queue_is_an_answer(tiers: TierSet, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    tiers.prepare(gate)
    assert gate.begun.wait(WAIT_S)
    monkeypatch.setattr(tiers._storing, "_max_bytes", 40)
    assert tiers.store(KEYS[:2], pages(2))
    assert not tiers.store(KEYS[2:4], pages(2))
    gate.open()


def test_too_much_on_its_way_is_told(tiers: TierSet, tier: MemoryTier) -> None:
    tier.hold()
    first = wanted()
    assert tiers.start(first) is None
    tiers._fetching._max_bytes = 100
    refusal = tiers.start(wanted())
    assert refusal is not None
    assert refusal.decision is Decision.BUSY
    tier.release()
    assert first.wait(WAIT_S)


def test_a_tier_that_is_down_drops_and_the_next_one_keeps() -> None:
    down, up = MemoryTier("disk"), MemoryTier("redis")
    down.is_up = False
    tiers = TierSet([down, up], codec=RawCodec(16), root=b"root", ring=lambda: None)
    tiers.store(KEYS[:3], pages(3))
    tiers.close(timeout_s=WAIT_S)
    assert (down.num_pages, up.num_pages) == (0, 3)
    assert [use.num_dropped for use in tiers.uses()] == [{"down": 3}, {}]


def test_pages_that_the_format_cannot_hold_are_counted(tier: MemoryTier) -> None:
    tiers = TierSet([tier], codec=Int8Codec(64), root=b"root", ring=lambda: None)
    values = np.zeros((2, 64), np.uint8)
    values.view(np.uint16)[1, 3] = 0x7F80  # infinity
    tiers.store(KEYS[:2], values)
    tiers.close(timeout_s=WAIT_S)
    assert list(tier.pages) == [KEYS[0].identity]
    assert tiers.uses()[0].num_dropped == {"not_finite": 1}


def test_forgotten_pages_are_those_that_wait_to_be_stored_too(
    tiers: TierSet, tier: MemoryTier
) -> None:
    gate = Gate()
    tiers.prepare(gate)
    tiers.store(KEYS[:3], pages(3))
    tiers.forget([KEYS[0].identity, KEYS[2].identity])
    gate.open()
    tiers.close(timeout_s=WAIT_S)
    assert list(tier.pages) == [KEYS[1].identity]


def test_nothing_is_fetched_before_what_was_forgotten_is_gone(
    tiers: TierSet, tier: MemoryTier
) -> None:
    gate, is_gone = Gate(), threading.Event()
    tiers.prepare(gate)
    tiers.forget(None)
    refusal = tiers.start(wanted())
    assert refusal is not None
    assert refusal.decision is Decision.BUSY
    tiers.prepare(is_gone.set)
    gate.open()
    assert is_gone.wait(WAIT_S)
    assert tiers.start(fetch := wanted()) is None
    assert fetch.wait(WAIT_S)
    assert ("count", 4) in tier.calls


def test_what_a_slower_tier_gave_is_not_kept_above_after_a_flush() -> None:
    disk, redis = MemoryTier("disk"), MemoryTier("redis")
    tiers = TierSet([disk, redis], codec=RawCodec(16), root=b"root", ring=lambda: None)
    gate = Gate()
    tiers.prepare(gate)
    before, cancelled, after = wanted(), wanted(), wanted()
    tiers._keep_above(before, 1, KEYS[:2], [b"x" * 16] * 2)
    cancelled.is_cancelled = True
    tiers.forget(None)
    tiers._keep_above(cancelled, 1, KEYS[4:6], [b"x" * 16] * 2)
    tiers._keep_above(after, 1, KEYS[2:4], [b"x" * 16] * 2)
    gate.open()
    tiers.close(timeout_s=WAIT_S)
    assert set(disk.pages) == {KEYS[2].identity, KEYS[3].identity}
    assert disk.num_calls("store") == 1


class SilentDirectory:
    def announce(self, stored: Sequence[bytes], removed: Sequence[bytes] = ()) -> None: ...


def test_news_for_the_directory_wait_in_a_bounded_queue() -> None:
    tiers = TierSet(
        [MemoryTier("redis")],
        codec=RawCodec(16),
        root=b"root",
        ring=lambda: None,
        directory=SilentDirectory(),
    )
    gate = Gate()
    tiers.prepare(gate)
    news = [bytes(32)] * (MAX_STORE_BYTES // QUEUED_NAME_BYTES // 2 + 1)
    assert tiers.announce(news, ())
    assert not tiers.announce((), news)
    gate.open()
    tiers.close(timeout_s=WAIT_S)


def test_counts_are_of_what_is_behind_the_tiers_before() -> None:
    disk, redis = MemoryTier("disk"), MemoryTier("redis")
    tiers = TierSet([disk, redis], codec=RawCodec(16), root=b"root", ring=lambda: None)
    keys = wanted(6).keys(b"root")
    disk.pages = {key.identity: (key.tokens, b"") for key in keys[:2]}
    redis.pages = {key.identity: (key.tokens, b"") for key in keys[:5]}
    assert tiers.count(wanted(6)).result(WAIT_S) == {"disk": 2, "redis": 3}
    redis.is_up = False
    assert tiers.count(wanted(6)).result(WAIT_S) == {"disk": 2}
    tiers.close(timeout_s=WAIT_S)
    assert tiers.count(wanted(6)).result(0) == {}


def test_an_empty_host_tier_is_not_asked() -> None:
    host = MemoryTier("host")
    tiers = TierSet([host], codec=RawCodec(16), root=b"root", ring=lambda: None)
    assert not tiers.may_have_pages()
    host.pages[b"x"] = (b"", b"")
    assert tiers.may_have_pages()
    tiers.close(timeout_s=WAIT_S)


def test_a_tier_that_keeps_its_thread_is_left_open(tiers: TierSet, tier: MemoryTier) -> None:
    tier.hold()
    tiers.start(wanted())
    tiers.close(timeout_s=0.05)
    assert not tier.is_closed
    tier.release()


def test_a_page_alone_tells_little_of_what_a_tier_costs(
    tier: MemoryTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []

    def gate(*, full_bytes: int) -> CostGate:
        told.append(full_bytes)
        return CostGate(full_bytes=full_bytes)

    monkeypatch.setattr("runtime.tier_threads.CostGate", gate)
    made = TierSet([tier], codec=RawCodec(16), root=b"root", ring=lambda: None)
    made.close(timeout_s=WAIT_S)
    assert told == [FULL_PAGES * 16]
    assert FULL_PAGES > 1
