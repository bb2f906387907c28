"""The key file: what it means, what it must not say, and when it is read again."""

import asyncio
import logging
import os
import re
from pathlib import Path
from typing import Any

import pytest

from gateway.accounts import AccountLimits
from gateway.errors import Unauthorized
from gateway.key_file import MAX_BYTES, KeyFileError, parse_keys, read_key_file
from gateway.key_file_watch import KeyFileWatch
from tests.key_files import SECRET, hash_of, key_file
from tests.waiting import until

A, B, C = hash_of("a"), hash_of("b"), hash_of("c")


def problem_of(text: str | bytes) -> str:
    with pytest.raises(KeyFileError) as caught:
        parse_keys(text.encode() if isinstance(text, str) else text)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_every_field_of_a_file_is_read() -> None:
    first, second, third = parse_keys(
        f"""
        defaults:
          requests_per_minute: 60
          tokens_per_minute: 1_000
          models: [small]
        keys:
          - hash: {A}
            tenant: search
            role: admin
            tokens_per_minute: null
            max_concurrent: 2
            cache_quota_mb: 3
            models: ["org/*", tiny]
          - {{hash: "{B.upper().replace("SHA", "sha")}", tenant: search}}
          - {{hash: {C}, tenant: "42"}}
        """.encode()
    )
    limits = AccountLimits(60, None, 2, 3)
    assert (first.tenant, first.role, first.models) == ("search", "admin", ("org/*", "tiny"))
    assert first.limits == second.limits == limits
    assert (second.role, second.models) == ("user", ("small",))
    assert first.digest.hex() == A.removeprefix("sha256:")
    assert (third.tenant, third.limits) == ("42", AccountLimits(60, 1000))


def test_example_in_the_documentation_is_a_key_file() -> None:
    text = (Path(__file__).parents[3] / "docs/keys.md").read_text()
    (example,) = re.findall(r"```yaml\n(.*?)```", text, flags=re.S)
    first, second, third = parse_keys(example.encode())
    assert first.limits == second.limits == AccountLimits(600, None, 8)
    assert (third.role, third.limits) == ("admin", AccountLimits(60, 40_000))


def test_list_may_be_empty() -> None:
    assert parse_keys(b"keys: []") == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1: it is empty"),
        ("# only a comment\n", "line 1: it is empty"),
        ("- 1", "line 1, the file: expected fields"),
        ("defaults: {}", "line 1, the file: expected a field 'keys'"),
        ("keys: 5", "line 1, 'keys': expected a list"),
        ("keys: []\nkeis: []", "line 2, the file: unknown field 'keis'; known: defaults, keys"),
        ("keys: []\nkeys: []", "line 2, the file: the field 'keys' is there twice"),
        ("defaults: {role: user}\nkeys: []", "line 1, 'defaults': unknown field 'role'"),
        ("keys:\n- text", "line 2, key 1: expected fields"),
        (f"keys:\n- hash: {A}", "line 2, key 1: the field 'tenant' is missing"),
        ("keys:\n- tenant: a", "line 2, key 1: the field 'hash' is missing"),
        (f"keys:\n- hash: {A}\n  tenant: no", "line 3, key 1, 'tenant': expected text"),
        (f"keys:\n- hash: {A}\n  tenant: ' '", "line 3, key 1, 'tenant': expected a name"),
        (f"keys:\n- hash: {A}\n  tenant: {'x' * 129}", "line 3, key 1, 'tenant': expected a name"),
        (f"keys:\n- hash: {A}\n  tenant: a\n  role: root", "expected one of user, monitor, admin"),
        (f"keys:\n- hash: {A}\n  tenant: a\n  models: []", "'models': expected a list"),
        (f"keys:\n- hash: {A}\n  tenant: a\n  models: m", "'models': expected a list"),
        (f"keys:\n- hash: {A}\n  tenant: a\n  models: [1]", "'models': expected text"),
        (f"keys:\n- hash: {A}\n  tenant: a\n  rpm: 1", "line 4, key 1: unknown field 'rpm'"),
        (f"keys:\n- <<: {{hash: {A}}}", "line 2, key 1: unknown field; known: hash"),
        ("keys: [\n", "line 2: did not find expected"),
        ("keys: []\n---\nkeys: []", "another document"),
        ("keys: &k [*nothing]", "line 1: found undefined alias"),
        ("[" * 100_000, "line 1: "),
        ("{a: " * 100_000, "line 1: "),
        (b"keys:\n- \xff", "line 2: it is not UTF-8"),
        ("keys: \x01", "line 1: it has characters"),
    ],
)
def test_what_cannot_be_used_is_told_with_line_and_field(text: str | bytes, said: str) -> None:
    assert said in problem_of(text)


@pytest.mark.parametrize(
    "value",
    ["0", "-1", "1.5", "1e3", "true", "'5'", "soon", "[1]", "010", "0x10", "1:30", "9" * 30],
)
def test_limits_are_whole_numbers_from_one(value: str) -> None:
    text = f"keys:\n- hash: {A}\n  tenant: a\n  tokens_per_minute: {value}"
    assert "line 4, key 1, 'tokens_per_minute': expected a whole number" in problem_of(text)


def test_the_same_key_twice_is_refused() -> None:
    text = f"keys:\n- {{hash: {A}, tenant: a}}\n- {{hash: {A}, tenant: b}}"
    assert problem_of(text) == "line 3, key 2, 'hash': key 1 has the same"


@pytest.mark.parametrize(("first", "second"), [("5", "6"), ("5", "null"), ("null", "6")])
def test_keys_of_one_tenant_cannot_have_different_limits(first: str, second: str) -> None:
    text = (
        f"keys:\n- {{hash: {A}, tenant: a, max_concurrent: {first}}}\n"
        f"- {{hash: {B}, tenant: a, max_concurrent: {second}}}"
    )
    assert "line 3, key 2, 'max_concurrent': key 1 of the same tenant says" in problem_of(text)
    equal = text.replace(f"max_concurrent: {second}", f"max_concurrent: {first}")
    assert len(parse_keys(equal.encode())) == 2


@pytest.mark.parametrize("value", ["rg-plain-key", "sha256:12", "md5:" + "a" * 64, "a" * 64])
def test_what_may_be_a_key_is_not_repeated(value: str) -> None:
    said = problem_of(f"keys:\n- hash: {value}\n  tenant: a")
    assert "line 2, key 1, 'hash': expected sha256:" in said
    assert value not in said
    assert "plain" not in problem_of("keys:\n- rg-plain-key: user")


def test_file_that_is_not_there_or_is_too_large_is_named(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    with pytest.raises(KeyFileError, match=r"keys\.yaml: No such file"):
        read_key_file(path)
    path.write_bytes(b" " * (MAX_BYTES + 1))
    with pytest.raises(KeyFileError, match=r"keys\.yaml: it is larger"):
        read_key_file(path)
    path.write_text("keys: 5")
    with pytest.raises(KeyFileError, match=r"keys\.yaml, line 1, 'keys': expected a list"):
        read_key_file(path)


class Watched:
    """A file, the keys that it gives, and what its readings came to."""

    def __init__(self, folder: Path, *plain: str) -> None:
        self.path = key_file(folder, {"a": {"tenant": "team"}})
        self.readings: list[bool] = []
        self.watch = KeyFileWatch(self.path, on_reload=self.readings.append, poll_s=0)
        self.keys = self.watch.open(plain, secret=SECRET)

    async def look(self, times: int = 2) -> list[bool]:
        for _ in range(times):
            await self.watch.check()
        return self.readings

    def accepts(self, key: str) -> bool:
        try:
            return bool(self.keys.account_of(f"Bearer {key}"))
        except Unauthorized:
            return False


async def test_changed_file_counts_once_it_keeps_still(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    assert await watched.look() == []
    key_file(tmp_path, {"b": {"tenant": "team"}})
    assert await watched.look(1) == []
    key_file(tmp_path, {"b": {"tenant": "team"}, "c": {"tenant": "team"}})
    assert await watched.look(1) == []
    assert watched.accepts("a")
    assert await watched.look(1) == [True]
    assert [watched.accepts(key) for key in "abc"] == [False, True, True]
    assert await watched.look() == [True]


async def test_file_that_is_replaced_by_another_of_its_size_and_time_is_noticed(
    tmp_path: Path,
) -> None:
    watched = Watched(tmp_path)
    times = watched.path.stat()
    other = key_file(tmp_path, {"b": {"tenant": "team"}}, name="new.yaml")
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    other.replace(watched.path)
    assert await watched.look() == [True]
    assert watched.accepts("b")


@pytest.mark.parametrize("text", [None, "keys: 5", f"keys: [{{hash: {C}, tenant: x}}]"])
async def test_broken_file_keeps_the_old_keys_and_is_told_once(
    tmp_path: Path, text: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    watched = Watched(tmp_path, "c")
    if text is None:
        watched.path.unlink()
    else:
        watched.path.write_text(text)
    assert await watched.look(6) == [False]
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "keys.yaml" in record.getMessage()
    assert watched.accepts("a")
    key_file(tmp_path, {"b": {"tenant": "team"}})
    assert await watched.look() == [False, True]
    assert watched.accepts("b")


async def test_service_looks_by_itself_and_outlives_what_nobody_foresaw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    watched = Watched(tmp_path)
    failed = asyncio.Event()

    def failing_once(_path: Path) -> object:
        monkeypatch.setattr("gateway.key_file_watch.read_key_file", read_key_file)
        failed.set()
        raise ZeroDivisionError

    monkeypatch.setattr("gateway.key_file_watch.read_key_file", failing_once)
    await watched.watch.start()
    key_file(tmp_path, {"b": {"tenant": "team"}})
    await asyncio.wait_for(failed.wait(), 10)
    key_file(tmp_path, {"b": {"tenant": "team"}, "c": {"tenant": "team"}})
    await until(lambda: watched.accepts("c"))
    await watched.watch.stop()
    assert watched.readings == [False, True]
    assert "could not be looked at" in caplog.text


def test_a_group_and_its_quota_are_those_of_all_its_tenants() -> None:
    entries = parse_keys(
        f"""
        defaults: {{cache_quota_mb: 9}}
        keys:
          - {{hash: {A}, tenant: search, cache_group: shared}}
          - {{hash: {B}, tenant: search, max_concurrent: 2}}
          - {{hash: {C}, tenant: other, cache_group: shared, cache_quota_mb: 5}}
          - {{hash: {hash_of("d")}, tenant: shared}}
        """.encode()
    )
    assert [entry.cache_group for entry in entries] == ["shared", "shared", "shared", None]
    assert [entry.limits.cache_quota_mb for entry in entries] == [5, 5, 5, 9]
    assert [entry.limits.max_concurrent for entry in entries] == [2, 2, None, None]


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (
            {"tenant": "a", "cache_group": "x"},
            {"tenant": "a", "cache_group": "y"},
            "key 2, 'cache_group': key 1 of the same tenant says 'x', this 'y'",
        ),
        (
            {"tenant": "a", "cache_group": "x", "cache_quota_mb": 3},
            {"tenant": "b", "cache_group": "x", "cache_quota_mb": None},
            "key 2, 'cache_quota_mb': key 1 of the same cache_group says 3, this no limit",
        ),
        ({"tenant": "a"}, {"tenant": "b", "cache_group": 5}, "key 2, 'cache_group': expected text"),
        ({"tenant": "a"}, {"tenant": "b", "cache_group": " "}, "expected a name of at most 128"),
    ],
)
def test_who_shares_a_cache_agrees_about_it(
    tmp_path: Path, first: dict[str, Any], second: dict[str, Any], said: str
) -> None:
    assert said in problem_of(key_file(tmp_path, {"a": first, "b": second}).read_bytes())
