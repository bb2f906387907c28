"""The secret in the cache folder: made once, found again, and never in place of one that is set."""

import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gateway.kept_secret import SECRET_FILE, with_kept_secret
from gateway.settings import Settings, SettingsError
from prefix_cache import tenant_salt


def settings_with(folder: Path, **values: object) -> Settings:
    return Settings.model_validate({"cache_dir": str(folder), **values})


def secret_in(folder: Path) -> str:
    return with_kept_secret(settings_with(folder)).server_secret


def test_a_restart_keeps_the_namespaces(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "cache"
    first, second = secret_in(folder), secret_in(folder)
    assert first == second
    assert tenant_salt(first.encode(), "a", None) == tenant_salt(second.encode(), "a", None)
    assert first != Settings().server_secret


def test_two_folders_have_two_secrets(tmp_path: Path) -> None:
    assert secret_in(tmp_path / "a") != secret_in(tmp_path / "b")


def test_folder_and_secret_are_for_this_user_alone_and_nothing_else_is_left(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "cache"
    mask = os.umask(0)
    try:
        secret_in(folder)
    finally:
        os.umask(mask)
    assert [path.name for path in folder.iterdir()] == [SECRET_FILE]
    assert stat.S_IMODE((folder / SECRET_FILE).stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_secret_that_is_set_stays_and_none_is_kept(tmp_path: Path) -> None:
    settings = settings_with(tmp_path, server_secret="s" * 16)
    assert with_kept_secret(settings) is settings
    assert list(tmp_path.iterdir()) == []


def test_without_a_folder_nothing_changes() -> None:
    settings = Settings()
    assert with_kept_secret(settings) is settings


def test_for_redis_the_secret_has_to_be_given(tmp_path: Path) -> None:
    """Settings that share prefixes refuse a secret that nobody gave."""
    settings = settings_with(tmp_path, cache_redis_url="redis://h:1/0")
    assert "server_secret" not in with_kept_secret(settings).model_fields_set


def test_servers_that_start_at_once_end_with_the_same_secret(tmp_path: Path) -> None:
    num_servers = 4
    with ThreadPoolExecutor(num_servers) as pool:
        for attempt in range(20):
            barrier, folder = threading.Barrier(num_servers), tmp_path / str(attempt)

            def start(barrier: threading.Barrier = barrier, folder: Path = folder) -> str:
                barrier.wait()
                return secret_in(folder)

            starts = [pool.submit(start) for _ in range(num_servers)]
            assert len({one.result() for one in starts}) == 1


def test_who_is_second_by_a_moment_takes_the_first_ones_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(draft: Path, path: Path) -> None:
        path.write_text("a" * 64)
        raise FileExistsError(draft)

    monkeypatch.setattr(os, "link", link)
    assert secret_in(tmp_path) == "a" * 64
    assert [path.name for path in tmp_path.iterdir()] == [SECRET_FILE]


@pytest.mark.parametrize("content", ["", "short", "g" * 64, "a" * 65])
def test_a_file_that_holds_no_secret_is_refused_and_left(tmp_path: Path, content: str) -> None:
    (tmp_path / SECRET_FILE).write_text(content)
    with pytest.raises(SettingsError, match="remove that file"):
        secret_in(tmp_path)
    assert (tmp_path / SECRET_FILE).read_text() == content


@pytest.mark.parametrize("is_set", [True, False])
def test_a_folder_that_cannot_be_had_is_refused_in_one_line(
    tmp_path: Path, *, is_set: bool
) -> None:
    (tmp_path / "file").write_text("mine")
    given = {"server_secret": "s" * 16} if is_set else {}
    with pytest.raises(SettingsError) as caught:
        with_kept_secret(settings_with(tmp_path / "file" / "cache", **given))
    assert str(caught.value).startswith("RADIXGATE_CACHE_DIR='")
    assert str(caught.value).endswith("expected a folder that can be written (Not a directory)")
    assert "\n" not in str(caught.value)


def test_a_folder_that_cannot_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret_in(tmp_path)

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(SettingsError, match="Permission denied"):
        secret_in(tmp_path)
