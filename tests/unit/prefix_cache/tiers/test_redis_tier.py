"""Pages in a real Valkey: what one runtime stores another finds, exactly."""

import pytest

from prefix_cache.tiers.page_file import encode_page
from prefix_cache.tiers.redis_tier import MAX_REJECTED_IN_A_ROW, WINDOW_BYTES, RedisTier
from prefix_cache.tiers.resp import Command
from tests.redis_pages import ROOT, open_calls, open_tier
from tests.tier_pages import key_of, page_of, payload_of, root_of
from tests.valkey_server import ValkeyServer
from tests.waiting import until

KEYS = [key_of(number) for number in range(5)]
PAGES = [page_of(number) for number in range(5)]


def plain(payloads: list[bytes | memoryview]) -> list[bytes]:
    return [bytes(payload) for payload in payloads]


def name_of(number: int, root: bytes = ROOT) -> bytes:
    return b"radixgate:kv:%s:%s" % (
        root.hex()[:16].encode(),
        key_of(number).identity.hex().encode(),
    )


def send(valkey: ValkeyServer, *commands: Command) -> list[object]:
    with open_calls(valkey.url) as calls:
        return list(calls.run(commands))


def value_of(number: int, *, root: bytes = ROOT) -> tuple[bytes, bytes]:
    head, payload = encode_page(key_of(number), payload_of(number), root=root)
    return head, bytes(payload)


def test_what_one_replica_stores_the_other_finds(valkey: ValkeyServer) -> None:
    with open_tier(valkey.url) as one, open_tier(valkey.url, holder="two") as other:
        one.store(PAGES[:3])
        assert other.count_leading(KEYS) == 3
        assert plain(other.fetch(KEYS)) == [payload_of(number) for number in range(3)]
        assert (other.counts.num_found, other.counts.num_missing) == (3, 2)
        assert (other.counts.num_fetched, other.counts.fetched_bytes) == (3, 3 * 256)
        assert (one.counts.num_stored, one.counts.stored_bytes) == (3, 3 * 256)


def test_pages_behind_one_that_is_missing_do_not_count(valkey: ValkeyServer) -> None:
    with open_tier(valkey.url) as tier:
        tier.store([PAGES[0], *PAGES[2:]])
        assert tier.count_leading(KEYS) == 1
        assert plain(tier.fetch(KEYS)) == [payload_of(0)]
        assert tier.count_leading(KEYS[1:]) == 0
        assert tier.fetch(KEYS[1:]) == []


def test_nothing_asked_is_nothing_found(valkey: ValkeyServer) -> None:
    with open_tier(valkey.url) as tier:
        tier.store([])
        assert (tier.count_leading([]), tier.fetch([])) == (0, [])


@pytest.mark.parametrize("num_bytes", [1, 300_000, 3_000_000])
def test_pages_of_any_size_come_through_several_windows(
    num_bytes: int, valkey: ValkeyServer
) -> None:
    count = min(40, 2 * WINDOW_BYTES // num_bytes)
    pages = [page_of(number, num_bytes=num_bytes) for number in range(count)]
    keys = [page.key for page in pages]
    with open_tier(valkey.url) as one, open_tier(valkey.url) as other:
        one.store(pages)
        for _ in range(2):  # of an unknown size, then of a known one
            assert plain(other.fetch(keys)) == [page.payload for page in pages]


def test_payloads_stay_as_they_are_while_others_are_fetched(valkey: ValkeyServer) -> None:
    with open_tier(valkey.url) as tier:
        pages = [page_of(number, num_bytes=50_000) for number in range(4)]
        tier.store(pages)
        held = [tier.fetch([page.key]) for page in pages for _ in range(3)]
        assert [bytes(payload) for (payload,) in held] == [
            page.payload for page in pages for _ in range(3)
        ]


def test_only_what_is_not_there_is_stored_and_the_rest_lives_longer(valkey: ValkeyServer) -> None:
    with open_tier(valkey.url, ttl_s=100) as brief, open_tier(valkey.url, ttl_s=900) as long:
        brief.store(PAGES[:2])
        long.store(PAGES[:3])
        assert (long.counts.num_stored, long.counts.dropped) == (1, {})
    times = send(valkey, *[(b"TTL", name_of(number)) for number in range(3)])
    assert all(isinstance(ttl, int) and 800 < ttl <= 900 for ttl in times)


def test_what_was_used_lives_longer_after_the_next_upkeep(valkey: ValkeyServer) -> None:
    with open_tier(valkey.url, ttl_s=100) as one, open_tier(valkey.url, ttl_s=900) as other:
        one.store(PAGES[:2])
        other.fetch(KEYS[:1])
        assert send(valkey, (b"TTL", name_of(0)))[0] in range(90, 101)
        other.upkeep()
    used, unused = send(valkey, (b"TTL", name_of(0)), (b"TTL", name_of(1)))
    assert used in range(890, 901)
    assert unused in range(90, 101)


def test_what_was_used_elsewhere_lives_longer_too(valkey: ValkeyServer) -> None:
    with open_tier(valkey.url, ttl_s=100) as one, open_tier(valkey.url, ttl_s=900) as other:
        one.store(PAGES[:2])
        other.touch([KEYS[0].identity, KEYS[4].identity])
        other.upkeep()
        assert other.count_leading(KEYS[4:]) == 0
    used, unused = send(valkey, (b"TTL", name_of(0)), (b"TTL", name_of(1)))
    assert used in range(890, 901)
    assert unused in range(90, 101)


@pytest.mark.parametrize(
    ("reason", "value"),
    [
        ("version", b"x" * 500),
        ("length", b"x"),
        ("length", b"".join(value_of(0))[:-1]),
        ("checksum", b"".join(value_of(0))[:-1] + b"\x00"),
        ("identity", b"".join(value_of(1))),
        ("root", b"".join(value_of(0, root=root_of("another")))),
    ],
)
def test_what_is_not_the_page_is_rejected_removed_and_stored_anew(
    reason: str, value: bytes, valkey: ValkeyServer
) -> None:
    with open_tier(valkey.url) as tier:
        tier.store(PAGES[1:2])
        send(valkey, (b"SET", name_of(0), value))
        assert tier.fetch(KEYS[:2]) == []
        assert tier.counts.rejected == {reason: 1}
        tier.upkeep()
        assert send(valkey, (b"EXISTS", name_of(0)))[0] == 0
        tier.store(PAGES[:1])
        assert plain(tier.fetch(KEYS[:2])) == [payload_of(0), payload_of(1)]
        assert tier.is_up


def test_a_server_of_nothing_but_wrong_pages_is_left_alone(valkey: ValkeyServer) -> None:
    with open_tier(valkey.url) as tier:
        send(valkey, *[(b"SET", name_of(number), b"x") for number in range(5)])
        for attempt in range(MAX_REJECTED_IN_A_ROW):
            assert tier.is_up
            tier.fetch([KEYS[attempt % 5]])
        assert not tier.is_up
        assert (tier.counts.num_failures, tier.counts.num_openings) == (1, 1)


def test_right_pages_between_wrong_ones_keep_it_up(valkey: ValkeyServer) -> None:
    with open_tier(valkey.url) as tier:
        tier.store(PAGES[1:])
        send(valkey, (b"SET", name_of(0), b"x"))
        for number in range(3 * MAX_REJECTED_IN_A_ROW):
            tier.fetch([KEYS[0] if number % 4 else KEYS[1]])
        assert tier.is_up


def test_keys_of_another_type_are_no_pages(valkey: ValkeyServer) -> None:
    with open_tier(valkey.url) as tier:
        send(valkey, (b"LPUSH", name_of(0), b"x"))
        assert (tier.count_leading(KEYS), tier.fetch(KEYS)) == (0, [])
        assert tier.is_up


def test_models_do_not_see_each_other(valkey: ValkeyServer) -> None:
    another = root_of("another")
    with open_tier(valkey.url) as one:
        one.store(PAGES)
        with open_calls(valkey.url) as calls:
            calls.run([(b"DEL", b"radixgate:kv-terms:model")])
        with open_tier(valkey.url, root=another) as other:
            assert other.count_leading(KEYS) == 0
            other.store(PAGES[:1])
            other.forget(None)
        assert one.count_leading(KEYS) == 5


def test_forgotten_pages_are_gone_for_all_replicas(valkey: ValkeyServer) -> None:
    with open_tier(valkey.url) as one, open_tier(valkey.url) as other:
        many = [page_of(number, num_bytes=8) for number in range(1500)]
        one.store(many)
        one.forget([KEYS[1].identity])
        assert other.count_leading(KEYS) == 1
        one.forget(None)
        assert other.count_leading(KEYS) == 0
        assert send(valkey, (b"DBSIZE",)) == [1]  # what they agreed on


def test_sizes_are_those_that_the_server_said_last(valkey: ValkeyServer) -> None:
    with open_tier(valkey.url) as tier:
        assert (tier.label, tier.num_pages, tier.max_bytes) == ("redis", 0, None)
        tier.store([page_of(number, num_bytes=100_000) for number in range(5)])
        send(valkey, (b"CONFIG", b"SET", b"maxmemory", b"100mb"))
        tier.upkeep()
        assert tier.num_pages >= 5
        assert tier.num_bytes > 500_000
        assert tier.max_bytes == 100 * 1024**2


def test_who_may_not_ask_for_sizes_goes_without(valkey: ValkeyServer) -> None:
    rules = (b"~radixgate:*", b"+@all", b"-info", b"-dbsize")
    send(valkey, (b"ACL", b"SETUSER", b"me", b"on", b">word", *rules))
    with open_tier(f"redis://me:word@127.0.0.1:{valkey.port}/0") as tier:
        tier.store(PAGES)
        tier.upkeep()
        assert tier.is_up
        assert tier.num_bytes == 0
        assert tier.count_leading(KEYS) == 5


async def test_the_thread_keeps_leases_alive_and_ends_with_the_tier(valkey: ValkeyServer) -> None:
    with open_tier(valkey.url, holder="h") as tier:
        tier.start_upkeep(0.001)
        await until(lambda: send(valkey, (b"EXISTS", b"radixgate:kv-holder:h")) == [1])
        assert _is_kept_up(tier)
        tier.close()
        assert not _is_kept_up(tier)
    assert send(valkey, (b"EXISTS", b"radixgate:kv-holder:h")) == [0]


def _is_kept_up(tier: RedisTier) -> bool:
    return tier._thread is not None and tier._thread.is_alive()
