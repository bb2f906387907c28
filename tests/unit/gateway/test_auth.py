"""Bearer keys and the accounts they stand for."""

import hashlib

import pytest

from gateway.accounts import ANONYMOUS, AccountLimits, digest_of
from gateway.auth import ApiKeys, DuplicateKey
from gateway.errors import Unauthorized
from gateway.key_file import KeyEntry

SECRET = b"secret"


def entry(key: str, tenant: str = "team", **rights: object) -> KeyEntry:
    digest = hashlib.sha256(key.encode()).digest()
    given = {"role": "user", "models": ("*",), "limits": AccountLimits(), **rights}
    return KeyEntry(digest=digest, tenant=tenant, **given)  # type: ignore[arg-type]


def test_without_keys_everyone_is_the_same_account() -> None:
    keys = ApiKeys([], secret=SECRET)
    assert keys.account_of(None) is keys.account_of("Bearer anything") is ANONYMOUS
    assert ANONYMOUS.tenant == ""


def test_tenants_differ_by_key_and_by_server() -> None:
    keys = ApiKeys(["one", "two"], secret=SECRET)
    tenant = keys.account_of("Bearer one").tenant
    assert tenant == keys.account_of("bearer one").tenant
    assert tenant != keys.account_of("Bearer two").tenant
    assert tenant != ApiKeys(["one"], secret=b"other").account_of("Bearer one").tenant
    assert len(tenant) == 16


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "one", "Basic one", "Bearer ones", "Bearer \udcff"]
)
def test_everything_else_is_refused_without_repeating_it(header: str | None) -> None:
    with pytest.raises(Unauthorized) as caught:
        ApiKeys(["one"], secret=SECRET).account_of(header)
    assert "ones" not in caught.value.message
    assert caught.value.headers() == {"www-authenticate": "Bearer"}


def test_key_file_without_keys_lets_nobody_in() -> None:
    with pytest.raises(Unauthorized):
        ApiKeys([], secret=SECRET, entries=()).account_of(None)


def test_keys_of_one_tenant_share_its_hash_and_differ_in_their_rights() -> None:
    limits = AccountLimits(requests_per_minute=5)
    keys = ApiKeys(
        ["plain"],
        secret=SECRET,
        entries=[
            entry("a", role="admin", limits=limits),
            entry("b", models=("m-*",), limits=limits),
            entry("c", "other"),
        ],
    )
    a, b, c, plain = (keys.account_of(f"Bearer {key}") for key in ("a", "b", "c", "plain"))
    assert a.tenant == b.tenant
    assert a.counter == b.counter
    assert len({a.tenant, c.tenant, plain.tenant}) == 3
    assert (a.is_admin, b.is_admin, plain.is_admin) == (True, False, False)
    assert a.limits == b.limits == limits
    assert plain.limits == AccountLimits()
    assert b.may_use("m-1")
    assert not b.may_use("n-1")


def test_tenants_of_a_group_own_one_cache_that_is_no_tenants() -> None:
    keys = ApiKeys(
        [],
        secret=SECRET,
        entries=[
            entry("a", "one", cache_group="both"),
            entry("b", "two", cache_group="both"),
            entry("c", "both"),
            entry("d", "three", cache_group="one"),
        ],
    )
    a, b, c, d = (keys.account_of(f"Bearer {key}") for key in "abcd")
    assert a.cache_owner == b.cache_owner
    assert a.tenant != b.tenant
    assert c.cache_owner == c.tenant
    assert len({a.cache_owner, c.cache_owner, d.cache_owner, a.tenant, b.tenant, d.tenant}) == 6
    other = ApiKeys([], secret=b"another", entries=[entry("a", "one", cache_group="both")])
    assert other.account_of("Bearer a").cache_owner != a.cache_owner
    assert "both" not in a.cache_owner


def test_counters_of_a_tenant_are_common_to_servers_and_its_hash_is_not() -> None:
    first, second = (
        ApiKeys([], secret=secret, entries=[entry("a")]).account_of("Bearer a")
        for secret in (b"one", b"two")
    )
    assert first.counter == second.counter
    assert first.tenant != second.tenant


def test_replaced_keys_count_from_the_next_request_on() -> None:
    keys = ApiKeys(["plain"], secret=SECRET, entries=[entry("old")])
    before = keys.account_of("Bearer old")
    keys.replace([entry("new", role="admin")])
    with pytest.raises(Unauthorized):
        keys.account_of("Bearer old")
    assert not before.is_admin
    assert keys.account_of("Bearer new").is_admin
    assert keys.account_of("Bearer plain").tenant


def test_key_in_both_places_is_refused_and_changes_nothing() -> None:
    with pytest.raises(DuplicateKey, match="key 2, 'hash': the key is in RADIXGATE_API_KEYS"):
        ApiKeys(["plain"], secret=SECRET, entries=[entry("a"), entry("plain")])
    keys = ApiKeys(["plain"], secret=SECRET, entries=[entry("a")])
    with pytest.raises(DuplicateKey):
        keys.replace([entry("b"), entry("plain", role="admin")])
    assert keys.account_of("Bearer a")
    assert not keys.account_of("Bearer plain").is_admin


def test_hash_of_a_key_is_the_plain_digest_of_its_bytes() -> None:
    assert digest_of("rg-k\u00e9y") == hashlib.sha256("rg-k\u00e9y".encode()).digest()
