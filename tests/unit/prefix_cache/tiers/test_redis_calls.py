"""Calls to Redis: answered, bounded in time, and none to a server that just failed."""

import threading
import time

import pytest

from prefix_cache.tiers import redis_calls
from prefix_cache.tiers.breaker import FIRST_PAUSE_S, Breaker
from prefix_cache.tiers.redis_calls import (
    MAX_CALL_S,
    RedisCalls,
    RedisUnavailable,
    TimeBound,
    write_refusal,
)
from prefix_cache.tiers.redis_url import RedisURLError
from prefix_cache.tiers.resp import Command, Refusal, Reply
from tests.flaky_redis import FlakyRedis
from tests.redis_pages import Clock, open_calls
from tests.valkey_server import ValkeyServer

NOWHERE = "redis://127.0.0.1:1/0"
PING: Command = (b"PING",)


def failure(calls: RedisCalls, *commands: Command) -> RedisUnavailable:
    with pytest.raises(RedisUnavailable) as caught:
        calls.run(commands or [PING])
    return caught.value


def test_each_command_has_its_reply(valkey: ValkeyServer) -> None:
    with open_calls(valkey.url) as calls:
        large = b"v" * 3_000_000
        assert calls.run([(b"SET", b"k", (large[:5], large[5:])), (b"STRLEN", b"k")]) == [
            b"OK",
            len(large),
        ]
        value, nothing, values = calls.run(
            [(b"GET", b"k"), (b"GET", b"no"), (b"MGET", b"no", b"k")]
        )
        assert isinstance(value, memoryview)
        assert (bytes(value), nothing) == (large, None)
        assert isinstance(values, list)
        assert values == [None, large]


def test_user_password_and_database_of_the_url_are_used(valkey: ValkeyServer) -> None:
    with open_calls(valkey.url) as calls:
        user = (b"ACL", b"SETUSER", b"me", b"on", b">word", b"~*", b"+@all")
        calls.run([user, (b"SET", b"where", b"0")])
    with open_calls(f"redis://me:word@127.0.0.1:{valkey.port}/3") as calls:
        assert calls.run([(b"GET", b"where"), (b"ACL", b"WHOAMI")]) == [None, b"me"]
    with open_calls(f"redis://me:wrong@127.0.0.1:{valkey.port}/3") as calls:
        error = failure(calls)
    assert error.kind == "auth"
    assert "wrong" not in str(error).replace("are wrong", "")


def test_a_connection_that_ended_while_nobody_used_it_is_no_failure(valkey: ValkeyServer) -> None:
    with open_calls(valkey.url) as calls:
        calls.run([PING])
        valkey.stop()
        valkey.start()
        assert calls.run([PING]) == [b"PONG"]
        assert calls.breaker.num_failures == 0


def test_threads_have_connections_of_their_own(valkey: ValkeyServer) -> None:
    answers: list[list[Reply]] = []
    with open_calls(valkey.url) as calls:

        def ask(number: int) -> None:
            for _ in range(20):
                answers.append(calls.run([(b"ECHO", b"%d" % number)] * 5))

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(answers) == 120
    assert all(len(set(map(str, replies))) == 1 for replies in answers)


def test_a_server_that_failed_is_asked_again_after_a_pause(valkey: ValkeyServer) -> None:
    clock = Clock()
    with open_calls(valkey.url, clock=clock) as calls:
        valkey.stop()
        assert failure(calls).kind == "refused"
        valkey.start()
        assert failure(calls).kind is None
        clock.now += FIRST_PAUSE_S
        assert calls.run([PING]) == [b"PONG"]
        assert calls.breaker.is_up


def test_a_silent_server_costs_the_bound_and_no_more(valkey: ValkeyServer) -> None:
    with open_calls(valkey.url, timeout_s=0.05) as calls:
        valkey.freeze()
        try:
            started = time.monotonic()
            assert failure(calls).kind == "timeout"
            assert 0.04 < time.monotonic() - started < 3
        finally:
            valkey.thaw()


def test_what_came_before_a_cut_is_told(valkey: ValkeyServer) -> None:
    with FlakyRedis(valkey.port) as flaky, open_calls(flaky.url) as calls:
        calls.run([(b"SET", b"k", b"v" * 10_000)])
        flaky.bytes_to_cut = 25_000
        error = failure(calls, *[(b"GET", b"k")] * 4)
    assert error.kind == "closed"
    assert [len(bytes(value)) for value in error.replies if isinstance(value, memoryview)] == [
        10_000
    ] * 2


def test_garbage_is_a_failure_of_its_own_kind_and_ends_the_connection(
    valkey: ValkeyServer,
) -> None:
    clock = Clock()
    with FlakyRedis(valkey.port) as flaky, open_calls(flaky.url, clock=clock) as calls:
        flaky.sends_garbage = True
        assert failure(calls).kind == "garbage"
        flaky.sends_garbage = False
        clock.now += FIRST_PAUSE_S
        assert calls.run([PING]) == [b"PONG"]
        assert flaky.num_connections == 2


def test_a_full_server_still_answers_what_reads(valkey: ValkeyServer) -> None:
    with open_calls(valkey.url) as calls:
        calls.run([(b"SET", b"k", b"v"), (b"CONFIG", b"SET", b"maxmemory", b"1")])
        written, read = calls.run([(b"SET", b"k", b"w"), (b"GET", b"k")])
        assert (write_refusal(written), read) == ("full", b"v")
        assert calls.breaker.is_up


def test_an_error_that_nobody_expects_is_a_failure_unless_it_is_allowed(
    valkey: ValkeyServer,
) -> None:
    with open_calls(valkey.url) as calls:
        (reply,) = calls.run([(b"NOCOMMAND",)], allows_refusals=True)
        assert isinstance(reply, Refusal)
        calls.run([(b"LPUSH", b"list", b"x")])
        wrong_type, value = calls.run([(b"STRLEN", b"list"), (b"GET", b"no")])
        assert isinstance(wrong_type, Refusal)
        assert value is None
        error = failure(calls, (b"NOCOMMAND",))
        assert error.kind == "error"
        assert "NOCOMMAND" in str(error)


@pytest.mark.parametrize(
    ("line", "kind", "said"),
    [
        (b"MOVED 1 127.0.0.1:7001", "moved", "name a single server"),
        (b"NOAUTH Authentication required.", "auth", "password"),
        (b"LOADING Redis is loading", "busy", "loading"),
    ],
)
def test_errors_of_servers_that_are_none_for_us_say_what_to_do(
    line: bytes, kind: str, said: str, valkey: ValkeyServer
) -> None:
    script = b"return redis.error_reply(ARGV[1])"
    with open_calls(valkey.url) as calls:
        error = failure(calls, (b"EVAL", script, 0, line))
    assert error.kind == kind
    assert said in str(error)


def test_a_trial_finds_out_whether_a_server_is_back_and_is_one_call() -> None:
    clock = Clock()
    with open_calls(NOWHERE, clock=clock) as calls:
        assert [failure(calls).kind for _ in range(3)] == ["refused", None, None]
        clock.now += FIRST_PAUSE_S
        assert [failure(calls).kind for _ in range(2)] == ["refused", None]
        assert calls.breaker.failures() == {"refused": 2}


def test_a_fault_of_ours_in_a_trial_leaves_the_next_call_to_try(valkey: ValkeyServer) -> None:
    clock = Clock()
    with open_calls(valkey.url, clock=clock) as calls:
        calls.breaker.fail("refused")
        clock.now += FIRST_PAUSE_S
        with pytest.raises(TypeError):
            calls.run([(b"GET", None)])  # type: ignore[list-item]
        assert calls.run([PING]) == [b"PONG"]


def test_the_bound_of_a_call_grows_with_its_bytes_up_to_a_limit() -> None:
    clock = Clock()
    bound = TimeBound(0.1, clock=clock)
    clock.now += 0.2
    with pytest.raises(TimeoutError, match=r"within 0\.1 s"):
        bound.left_s()
    bound.add_bytes(4_000_000)
    assert bound.left_s() == pytest.approx(0.1)
    bound.add_bytes(10**10)
    assert bound.left_s() == pytest.approx(MAX_CALL_S - 0.2)


def test_a_large_reply_may_take_longer_than_a_small_one(
    valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_calls, "MIN_BYTES_PER_S", 1e6)
    with FlakyRedis(valkey.port) as flaky, open_calls(flaky.url, timeout_s=0.3) as calls:
        calls.run([(b"SET", b"k", b"v" * 1_000_000)])
        flaky.delay_s = 0.025  # for each of some 16 pieces
        started = time.monotonic()
        (value,) = calls.run([(b"GET", b"k")])
        assert isinstance(value, memoryview)
        assert len(value) == 1_000_000
        assert time.monotonic() - started > 0.3


def test_after_the_end_no_connection_is_kept(valkey: ValkeyServer) -> None:
    calls = RedisCalls(valkey.url, breaker=Breaker("Redis"), timeout_s=5)
    calls.run([PING])
    calls.close()
    calls.run([PING])  # as a thread may that was about to
    with open_calls(valkey.url) as others:
        (clients,) = others.run([(b"CLIENT", b"LIST")])
    assert isinstance(clients, bytes)
    assert clients.count(b" addr=") == 1


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://h", "expected redis://"),
        ("redis://:pw@h/zero", "number of a database"),
        ("redis://:pw@/0", "expected redis://"),
        ("redis://:pw@h/0?no_option=1", "no_option"),
        ("redis://:pw@h/0?db=x", "cannot be read"),
    ],
)
def test_a_url_that_is_none_is_refused_and_not_repeated(url: str, said: str) -> None:
    with pytest.raises(RedisURLError, match=said) as caught:
        RedisCalls(url)
    assert "pw" not in str(caught.value)
