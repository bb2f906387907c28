"""Redis is slow, gone, cut off, full or wrong: no call raises or takes long, the counts say why,
and once Redis is well again so is the tier."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from prefix_cache.tiers import redis_calls
from prefix_cache.tiers.breaker import FIRST_PAUSE_S
from prefix_cache.tiers.redis_tier import RedisTier
from tests.flaky_redis import FlakyRedis
from tests.redis_pages import Clock, open_calls, open_tier
from tests.tier_pages import key_of, page_of, payload_of
from tests.valkey_server import ValkeyServer

KEYS = [key_of(number) for number in range(6)]
PAGES = [page_of(number) for number in range(6)]


@dataclass(frozen=True, slots=True)
class Bench:
    """A tier behind a proxy; another one, straight at the server, has stored the first pages."""

    tier: RedisTier
    flaky: FlakyRedis
    clock: Clock

    def wait_for_trial(self) -> None:
        self.clock.now += FIRST_PAUSE_S


@contextmanager
def bench_of(valkey: ValkeyServer, *, timeout_s: float = 5.0) -> Iterator[Bench]:
    clock = Clock()
    with open_tier(valkey.url) as other:
        other.store(PAGES[:4])
    with (
        FlakyRedis(valkey.port) as flaky,
        open_tier(flaky.url, clock=clock, timeout_s=timeout_s) as tier,
    ):
        yield Bench(tier, flaky, clock)


def use(tier: RedisTier) -> tuple[int, int]:
    """Everything that a runtime asks of it."""
    found, payloads = tier.count_leading(KEYS), tier.fetch(KEYS)
    tier.store(PAGES[4:])
    tier.forget([KEYS[5].identity])
    tier.directory.announce([KEYS[0].identity], [KEYS[1].identity])
    assert len(tier.directory.holders([KEYS[0].identity])) == 1
    tier.upkeep()
    return found, len(payloads)


Fault = Callable[[ValkeyServer, FlakyRedis], None]


def be_slow(_: ValkeyServer, flaky: FlakyRedis) -> None:
    flaky.delay_s = 0.5


def refuse(_: ValkeyServer, flaky: FlakyRedis) -> None:
    flaky.refuses = True
    flaky.cut()


def send_garbage(_: ValkeyServer, flaky: FlakyRedis) -> None:
    flaky.sends_garbage = True


def cut_in_the_middle(_: ValkeyServer, flaky: FlakyRedis) -> None:
    flaky.bytes_to_cut = 10


def stop(valkey: ValkeyServer, _: FlakyRedis) -> None:
    valkey.stop()


def freeze(valkey: ValkeyServer, _: FlakyRedis) -> None:
    valkey.freeze()


@pytest.mark.parametrize(
    ("fault", "kinds"),
    [
        (be_slow, {"timeout"}),
        (freeze, {"timeout"}),
        (refuse, {"closed", "refused"}),
        (stop, {"closed", "refused"}),
        (send_garbage, {"garbage"}),
        (cut_in_the_middle, {"closed"}),
    ],
)
def test_a_fault_costs_one_call_and_is_told(
    fault: Fault, kinds: set[str], valkey: ValkeyServer
) -> None:
    with bench_of(valkey, timeout_s=0.2) as bench:
        fault(valkey, bench.flaky)
        started = time.monotonic()
        assert use(bench.tier) == (0, 0)
        assert time.monotonic() - started < 2  # one bound, and no second one
        assert not bench.tier.is_up
        counts = bench.tier.counts
        assert (counts.num_failures, counts.num_openings) == (1, 1)
        assert counts.dropped == {"down": 2}
        assert set(bench.tier.failures) <= kinds
        if fault is freeze:
            valkey.thaw()


def test_what_no_request_waits_for_may_take_longer(
    valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_calls, "PATIENT_S", 5.0)
    with bench_of(valkey, timeout_s=0.1) as bench:
        bench.flaky.delay_s = 0.2
        bench.tier.store(PAGES[4:])
        bench.tier.directory.announce([KEYS[0].identity])
        bench.tier.forget([KEYS[5].identity])
        assert bench.tier.is_up
        assert (bench.tier.counts.num_stored, bench.tier.counts.num_failures) == (2, 0)
        assert bench.tier.count_leading(KEYS) == 0
        assert not bench.tier.is_up


@pytest.mark.parametrize("identities", [None, [KEYS[0].identity]])
def test_what_is_to_be_forgotten_never_comes_back(
    identities: list[bytes] | None, valkey: ValkeyServer
) -> None:
    with bench_of(valkey, timeout_s=5.0) as bench:
        refuse(valkey, bench.flaky)
        bench.tier.forget(identities)
        bench.flaky.refuses = False
        bench.wait_for_trial()
        assert bench.tier.fetch(KEYS) == []  # also before Redis has been told
        bench.wait_for_trial()
        bench.tier.upkeep()
        assert bench.tier.is_up
        with open_tier(valkey.url) as other:
            assert other.count_leading(KEYS) == 0
        bench.tier.store(PAGES[:4])
        assert bench.tier.count_leading(KEYS) == 4


@pytest.mark.parametrize("fault", [be_slow, refuse, send_garbage])
def test_once_redis_is_well_the_upkeep_finds_it_out(fault: Fault, valkey: ValkeyServer) -> None:
    with bench_of(valkey, timeout_s=0.2) as bench:
        fault(valkey, bench.flaky)
        use(bench.tier)
        bench.flaky.delay_s, bench.flaky.refuses, bench.flaky.sends_garbage = 0, False, False
        was_up = []
        for _ in range(2):  # not before its time
            bench.tier.upkeep()
            was_up.append(bench.tier.is_up)
            bench.wait_for_trial()
        bench.tier.upkeep()
        assert [*was_up, bench.tier.is_up] == [False, True, True]
        assert use(bench.tier) == (4, 4)
        assert (bench.tier.counts.num_failures, bench.tier.counts.num_openings) == (1, 1)


def test_a_restart_loses_the_pages_and_nothing_else(valkey: ValkeyServer) -> None:
    with bench_of(valkey) as bench:
        assert use(bench.tier) == (4, 4)
        valkey.stop()
        use(bench.tier)
        valkey.start()
        bench.wait_for_trial()
        assert use(bench.tier) == (0, 0)
        assert bench.tier.is_up
        bench.tier.store(PAGES)
        assert use(bench.tier)[1] == 6


def test_of_a_fetch_that_is_cut_what_had_come_is_used(valkey: ValkeyServer) -> None:
    pages = [page_of(number, num_bytes=2_000_000) for number in range(4)]
    with bench_of(valkey) as bench:
        bench.tier.forget(None)
        bench.tier.store(pages)
        bench.flaky.bytes_to_cut = 7_000_000  # MGETs of two pages: one whole one
        payloads = bench.tier.fetch([page.key for page in pages])
        assert [bytes(payload) for payload in payloads] == [page.payload for page in pages[:2]]
        assert not bench.tier.is_up


def test_a_full_server_is_written_to_ever_less_and_read_from_all_the_time(
    valkey: ValkeyServer,
) -> None:
    with bench_of(valkey) as bench, open_calls(valkey.url) as calls:
        bench.tier.count_leading(KEYS)
        limit = (b"CONFIG", b"SET", b"maxmemory")
        calls.run([(*limit, b"1"), (b"CONFIG", b"SET", b"maxmemory-policy", b"noeviction")])
        bench.tier.store(PAGES[4:5])
        assert bench.tier.counts.dropped == {"full": 1}
        bench.tier.store(PAGES[4:5])
        assert bench.tier.counts.dropped == {"full": 1, "down": 1}
        assert (bench.tier.count_leading(KEYS), len(bench.tier.fetch(KEYS))) == (4, 4)
        bench.tier.upkeep()
        assert bench.tier.is_up
        assert (bench.tier.counts.num_failures, bench.tier.counts.num_openings) == (1, 1)
        bench.wait_for_trial()
        bench.tier.store(PAGES[:4])  # all there: nothing is written, so nothing is known
        bench.tier.store(PAGES[4:5])
        assert (bench.tier.counts.num_failures, bench.tier.counts.num_openings) == (2, 1)
        calls.run([(*limit, b"0")])
        bench.clock.now += 2 * FIRST_PAUSE_S
        bench.tier.store(PAGES[4:5])
        assert bench.tier.count_leading(KEYS) == 5
        assert bench.tier.counts.num_stored == 1


def test_a_read_only_server_is_read_from(valkey: ValkeyServer) -> None:
    with bench_of(valkey) as bench, open_calls(valkey.url) as calls:
        calls.run(
            [
                (b"REPLICAOF", b"127.0.0.1", b"1"),
                (b"CONFIG", b"SET", b"replica-serve-stale-data", b"yes"),
            ]
        )
        bench.tier.store(PAGES[4:5])
        assert bench.tier.counts.dropped == {"readonly": 1}
        assert bytes(bench.tier.fetch(KEYS[:1])[0]) == payload_of(0)
        assert bench.tier.is_up


def test_a_server_that_comes_late_is_used_from_then_on(valkey: ValkeyServer) -> None:
    valkey.stop()
    clock = Clock()
    with open_tier(valkey.url, clock=clock) as tier:
        assert (*use(tier), tier.is_up) == (0, 0, False)
        assert tier.counts.dropped == {"agreement": 2}
        valkey.start()
        clock.now += FIRST_PAUSE_S
        tier.upkeep()
        tier.store(PAGES)
        assert tier.is_up
        assert use(tier) == (6, 6)
