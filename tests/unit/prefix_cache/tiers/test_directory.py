"""Who has which page: told by those who have them, forgotten with them."""

from collections.abc import Iterator

import pytest

from prefix_cache.tiers.directory import Directory
from prefix_cache.tiers.redis_calls import RedisCalls, RedisUnavailable
from prefix_cache.tiers.resp import Command, Reply
from tests.redis_pages import Clock, open_calls
from tests.tier_pages import key_of, root_of
from tests.valkey_server import ValkeyServer
from tests.waiting import until

ROOT = root_of("model")
ONE, TWO, THREE = (key_of(number).identity for number in range(3))
NOBODY: frozenset[str] = frozenset()


@pytest.fixture
def calls(valkey: ValkeyServer) -> Iterator[RedisCalls]:
    with open_calls(valkey.url) as calls:
        yield calls


class Holder(Directory):
    """One whose clocks the test moves."""

    def __init__(
        self, calls: RedisCalls, name: str, *, clock: Clock | None = None, lease_ms: int = 60_000
    ) -> None:
        self.time = clock or Clock()
        super().__init__(
            calls,
            root=ROOT,
            holder=name,
            lease_ms=lease_ms,
            entry_ttl_s=600,
            clock=self.time,
            wall_clock=self.time,
        )


def test_each_page_has_those_who_announced_it_and_hold_a_lease(calls: RedisCalls) -> None:
    a, b = Holder(calls, "a"), Holder(calls, "b")
    for holder in (a, b):
        holder.renew()
    a.announce([ONE, TWO])
    b.announce([TWO])
    assert b.holders([ONE, TWO, THREE]) == [{"a"}, {"a", "b"}, NOBODY]
    assert (a.num_held, b.num_held) == (2, 1)
    a.announce([], [TWO])
    assert b.holders([ONE, TWO]) == [{"a"}, {"b"}]
    assert a.num_held == 1


def test_a_page_that_left_and_came_back_is_there(calls: RedisCalls) -> None:
    a = Holder(calls, "a")
    a.renew()
    a.announce([ONE], [ONE, TWO])
    assert a.holders([ONE, TWO]) == [{"a"}, NOBODY]


def test_without_a_lease_entries_are_nobodys(calls: RedisCalls) -> None:
    a, b = Holder(calls, "a"), Holder(calls, "b")
    a.announce([ONE])
    assert b.holders([ONE]) == [NOBODY]
    a.renew()
    assert b.holders([ONE]) == [{"a"}]


async def test_a_dead_holders_entries_go_with_its_lease(calls: RedisCalls) -> None:
    dying, living = Holder(calls, "dying", lease_ms=40), Holder(calls, "living")
    dying.announce([ONE])
    living.announce([ONE])
    living.renew()
    dying.renew()
    await until(lambda: living.holders([ONE]) == [{"living"}])


def test_who_leaves_has_nothing_at_once(calls: RedisCalls) -> None:
    a, b = Holder(calls, "a"), Holder(calls, "b")
    a.renew()
    a.announce([ONE, TWO])
    a.leave()
    assert b.holders([ONE, TWO]) == [NOBODY, NOBODY]
    assert a.num_held == 0


def test_an_entry_ends_by_itself_and_its_holder_renews_it_in_time(calls: RedisCalls) -> None:
    clock = Clock()
    kept, forgotten = Holder(calls, "kept", clock=clock), Holder(calls, "forgotten", clock=clock)
    for holder in (kept, forgotten):
        holder.announce([ONE])
    for _ in range(4):
        clock.now += 299
        kept.renew()
    forgotten_lease_only = Holder(calls, "forgotten", clock=clock)
    forgotten_lease_only.renew()
    assert kept.holders([ONE]) == [{"kept"}]
    # Not only unseen: the next announcement has removed it.
    kept.announce([ONE])
    (members,) = calls.run([(b"ZRANGE", kept._key(ONE), 0, -1)])
    assert members == [b"kept"]
    (ttl_ms,) = calls.run([(b"PTTL", kept._key(ONE))])
    assert isinstance(ttl_ms, int)
    assert 590_000 < ttl_ms <= 600_000


def test_what_was_announced_a_moment_ago_is_not_sent_again(calls: RedisCalls) -> None:
    a = Holder(calls, "a")
    a.announce([ONE])
    calls.run([(b"DEL", a._key(ONE))])
    a.time.now += 299
    a.renew()
    assert calls.run([(b"EXISTS", a._key(ONE))]) == [0]
    a.time.now += 1
    a.renew()
    assert calls.run([(b"EXISTS", a._key(ONE))]) == [1]


def test_more_than_one_call_holds_are_announced_and_found(calls: RedisCalls) -> None:
    identities = [key_of(number).identity for number in range(2000)]
    a = Holder(calls, "a")
    a.renew()
    a.announce(identities)
    assert a.holders(identities) == [{"a"}] * 2000
    a.time.now += 300
    calls.run([(b"FLUSHALL",)])
    for _ in range(4):
        a.renew()
    assert a.holders(identities) == [{"a"}] * 2000


def test_models_have_directories_of_their_own(calls: RedisCalls) -> None:
    other = Directory(calls, root=root_of("another"), holder="a")
    a = Holder(calls, "a")
    a.renew()
    a.announce([ONE])
    assert other.holders([ONE]) == [NOBODY]


def test_keys_of_another_type_are_nobodys(calls: RedisCalls) -> None:
    a = Holder(calls, "a")
    a.renew()
    calls.run([(b"SET", a._key(ONE), b"text")])
    a.announce([ONE, TWO])
    assert a.holders([ONE, TWO]) == [NOBODY, {"a"}]
    assert calls.breaker.is_up


def test_without_redis_nobody_has_anything_and_all_is_told_later(
    calls: RedisCalls, valkey: ValkeyServer
) -> None:
    a = Holder(calls, "a")
    valkey.stop()
    a.announce([ONE, THREE])
    a.announce([], [THREE])
    a.renew()
    assert a.holders([ONE, TWO]) == [NOBODY, NOBODY]
    assert a.num_held == 1
    valkey.start()
    with open_calls(valkey.url) as fresh:
        a._calls = fresh
        a.renew()
        assert a.holders([ONE, TWO, THREE]) == [{"a"}, NOBODY, NOBODY]


def test_what_is_noted_while_redis_is_told_comes_on_top_of_it(calls: RedisCalls) -> None:
    a = Holder(calls, "a")
    a.announce([TWO])

    class Noting:
        """Stands in for the calls: things change while they are made."""

        def run(self, commands: list[Command], *, is_patient: bool) -> list[Reply]:
            a._calls = calls
            a.note([TWO], [ONE])
            return calls.run(commands, is_patient=is_patient)

    a._calls = Noting()  # type: ignore[assignment]
    a.announce([ONE], [TWO])
    a.renew()
    assert a.holders([ONE, TWO]) == [NOBODY, {"a"}]
    assert a.num_held == 1


def test_what_is_noted_while_redis_fails_is_newer_than_what_it_was_told(
    calls: RedisCalls,
) -> None:
    a = Holder(calls, "a")

    class Failing:
        def run(self, _: list[Command], **_options: bool) -> list[Reply]:
            a._calls = calls
            a.note([], [ONE])
            raise RedisUnavailable("timeout", "no answer")

    a._calls = Failing()  # type: ignore[assignment]
    a.announce([ONE])
    a.renew()
    assert (a.holders([ONE]), a.num_held) == ([NOBODY], 0)


def test_a_page_that_is_due_and_gone_is_not_renewed(calls: RedisCalls) -> None:
    a = Holder(calls, "a")
    a.announce([ONE])
    a.time.now += 300
    a.note([], [ONE])
    a.renew()
    assert (a.holders([ONE]), a.num_held) == ([NOBODY], 0)


def test_a_long_outage_leaves_no_more_to_say_than_there_is(
    calls: RedisCalls, valkey: ValkeyServer
) -> None:
    a = Holder(calls, "a")
    a.announce([ONE])
    valkey.stop()
    for number in range(3, 1000):
        identity = key_of(number).identity
        a.announce([identity])
        a.announce([], [identity])
    a.announce([], [ONE])
    assert (a.num_held, len(a._unsaid)) == (0, 1)


def test_what_is_noted_is_told_with_the_next_renewal(calls: RedisCalls) -> None:
    a = Holder(calls, "a")
    a.announce([TWO])
    a.note([ONE, THREE], [TWO])
    a.note([], [THREE])
    assert a.num_held == 1
    assert calls.run([(b"EXISTS", a._key(ONE), a._key(TWO))]) == [1]
    a.renew()
    assert a.holders([ONE, TWO, THREE]) == [{"a"}, NOBODY, NOBODY]
    assert a.num_held == 1
