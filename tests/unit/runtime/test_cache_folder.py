"""Where the cache is, also for users without a home."""

from pathlib import Path

import pytest

from runtime.cache_folder import cache_folder
from runtime.errors import ConfigError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    return tmp_path


def test_it_is_the_cache_of_the_user(home: Path) -> None:
    assert cache_folder() == home / ".cache" / "radixgate"


def test_it_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache_folder() == Path("/elsewhere/radixgate")


@pytest.mark.parametrize("relative", ["", "cache", "./cache"])
def test_a_relative_path_is_ignored_wherever_the_server_is_started(
    relative: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", relative)
    assert cache_folder() == home / ".cache" / "radixgate"


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", fail)
    with pytest.raises(ConfigError, match="set HOME or XDG_CACHE_HOME"):
        cache_folder()
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache_folder() == Path("/elsewhere/radixgate")
