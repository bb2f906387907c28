"""Servers of one model id agree, or the one that comes later is told in what they differ."""

from collections.abc import Iterator
from dataclasses import fields, replace

import pytest

from prefix_cache.tiers.agreement import Agreement, Disagreement, Terms
from prefix_cache.tiers.open_redis import open_redis_tier
from prefix_cache.tiers.redis_calls import RedisCalls, RedisUnavailable
from tests.redis_pages import ROOT, Clock, open_calls, open_tier, terms_of
from tests.tier_pages import key_of, page_of, root_of
from tests.valkey_server import ValkeyServer
from tests.waiting import until

TERMS = terms_of(secret_check="5ec2e7" * 10)


@pytest.fixture
def calls(valkey: ValkeyServer) -> Iterator[RedisCalls]:
    with open_calls(valkey.url) as calls:
        yield calls


def agreement(
    calls: RedisCalls, terms: Terms = TERMS, *, model_id: str = "main", lease_ms: int = 60_000
) -> Agreement:
    return Agreement(calls, terms, model_id=model_id, lease_ms=lease_ms)


def disagreement(calls: RedisCalls, terms: Terms = TERMS) -> Disagreement:
    later = agreement(calls, terms)
    with pytest.raises(Disagreement) as caught:
        later.settle()
    assert not later.is_settled
    assert later.disagreement is caught.value
    assert "\n" not in str(caught.value)
    return caught.value


def test_equal_terms_agree_whoever_comes_first(calls: RedisCalls) -> None:
    one, two = agreement(calls), agreement(calls, replace(TERMS))
    assert not one.is_settled
    for each in (one, two, one):
        each.settle()
        assert each.is_settled


DIFFERENT: dict[str, object] = {
    "protocol": 99,
    "identity_version": 98,
    "page_size": 32,
    "format": "int8",
    "secret_check": "c0ffee" * 10,
    "root": root_of("another").hex(),
}


def test_every_term_is_compared() -> None:
    assert set(DIFFERENT) == {field.name for field in fields(Terms)}


@pytest.mark.parametrize(
    ("field", "advice"),
    [
        ("protocol", "same version of radixgate"),
        ("identity_version", "same version of radixgate"),
        ("page_size", "same version of radixgate"),
        ("format", "RADIXGATE_CACHE_FORMAT"),
        ("secret_check", "RADIXGATE_SERVER_SECRET"),
        ("root", "RADIXGATE_DTYPE"),
    ],
)
def test_a_difference_names_the_field_and_what_to_do(
    field: str, advice: str, calls: RedisCalls
) -> None:
    agreement(calls).settle()
    error = disagreement(calls, replace(TERMS, **{field: DIFFERENT[field]}))  # type: ignore[arg-type]
    assert error.field == field
    assert f"differ in {field}" in str(error)
    assert advice in str(error)
    assert "serves main" in str(error)


def test_values_are_shown_short_and_those_of_secrets_not_at_all(calls: RedisCalls) -> None:
    agreement(calls).settle()
    root = root_of("another").hex()
    said = str(disagreement(calls, replace(TERMS, root=root)))
    assert f"(here {root[:12]}..., there {TERMS.root[:12]}...)" in said
    said = str(disagreement(calls, replace(TERMS, secret_check="c0ffee" * 10)))
    assert "c0ffee" not in said
    assert "5ec2e7" not in said


def test_a_format_that_differs_is_named_though_the_root_does_too(calls: RedisCalls) -> None:
    agreement(calls).settle()
    error = disagreement(calls, replace(TERMS, format="int8", root="00"))
    assert error.field == "format"


def test_models_of_other_ids_have_nothing_to_agree_on(calls: RedisCalls) -> None:
    agreement(calls).settle()
    other = agreement(calls, replace(TERMS, root="00"), model_id="other")
    other.settle()
    assert other.is_settled


@pytest.mark.parametrize("value", [b"no record", b"[]", b"{}", b"\xff" * 9000])
def test_a_record_that_none_of_us_wrote_is_a_difference(value: bytes, calls: RedisCalls) -> None:
    calls.run([(b"SET", b"radixgate:kv-terms:main", value)])
    assert disagreement(calls).field == "protocol"


async def test_the_record_goes_with_the_last_server_that_renews_it(calls: RedisCalls) -> None:
    key = b"radixgate:kv-terms:main"
    agreement(calls, lease_ms=50_000).settle()
    (left_ms,) = calls.run([(b"PTTL", key)])
    assert isinstance(left_ms, int)
    assert 0 < left_ms <= 50_000
    later = agreement(calls, replace(TERMS, root="00"))

    def has_agreed() -> bool:
        try:
            later.settle()
        except Disagreement:
            return False
        return later.is_settled

    assert not has_agreed()
    calls.run([(b"PEXPIRE", key, 10)])  # nobody renews it
    await until(has_agreed)
    assert later.disagreement is None


def test_settling_again_renews_the_lease_and_a_difference_does_not(calls: RedisCalls) -> None:
    key = b"radixgate:kv-terms:main"
    agreement(calls).settle()
    calls.run([(b"PEXPIRE", key, 5000)])
    disagreement(calls, replace(TERMS, root="00"))
    (left_ms,) = calls.run([(b"PTTL", key)])
    assert isinstance(left_ms, int)
    assert left_ms <= 5000
    agreement(calls).settle()
    (left_ms,) = calls.run([(b"PTTL", key)])
    assert isinstance(left_ms, int)
    assert left_ms > 50_000


def test_without_redis_nothing_is_settled_and_what_was_stays(
    calls: RedisCalls, valkey: ValkeyServer
) -> None:
    settled, not_settled = agreement(calls), agreement(calls)
    settled.settle()
    valkey.stop()
    for each in (settled, not_settled):
        with pytest.raises(RedisUnavailable):
            each.settle()
    assert (settled.is_settled, not_settled.is_settled) == (True, False)


def test_a_full_server_settles_nothing_new(calls: RedisCalls) -> None:
    calls.run([(b"CONFIG", b"SET", b"maxmemory", b"1")])
    with pytest.raises(RedisUnavailable, match="OOM"):
        agreement(calls).settle()


def open_real(url: str, root: bytes) -> None:
    tier = open_redis_tier(
        url,
        root=root,
        model_id="model",
        page_size=16,
        format="raw",
        secret_check="check",
        ttl_s=60,
        holder="h",
    )
    try:
        tier.store([page_of(0)])
        assert tier.count_leading([key_of(0)]) == tier.is_up
    finally:
        tier.close()


def test_a_server_that_differs_is_told_at_its_start(valkey: ValkeyServer) -> None:
    with open_tier(valkey.url):
        open_real(valkey.url, ROOT)
        with pytest.raises(Disagreement, match="differ in root"):
            open_real(valkey.url, root_of("another"))
        with open_calls(valkey.url) as calls:
            (clients,) = calls.run([(b"CLIENT", b"LIST")])
    assert isinstance(clients, bytes)
    assert clients.count(b" addr=") == 2  # nothing of the refused one is left


def test_a_server_starts_without_its_redis(caplog: pytest.LogCaptureFixture) -> None:
    open_real("redis://127.0.0.1:1/0", ROOT)
    assert caplog.text.count("going on without it") == 1


def test_a_difference_that_shows_later_keeps_the_tier_off_until_the_other_is_gone(
    valkey: ValkeyServer, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    valkey.stop()
    with open_tier(valkey.url, clock=clock, root=root_of("another")) as late:
        valkey.start()
        with open_tier(valkey.url):
            pass
        clock.now += 1
        for _ in range(3):
            late.upkeep()
        late.store([page_of(0)])
        assert (late.is_up, str(late.disagreement)[:11]) == (False, "this server")
        assert (late.fetch([key_of(0)]), late.counts.dropped) == ([], {"agreement": 1})
        (said,) = [record.message for record in caplog.records if record.levelname == "ERROR"]
        assert "differ in root" in said
        with open_calls(valkey.url) as calls:
            calls.run([(b"DEL", b"radixgate:kv-terms:model")])
        late.upkeep()
        assert (late.is_up, late.disagreement) == (True, None)
