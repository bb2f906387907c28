"""How a runtime process is started: its environment, its socket's folder, its end in words."""

import os
import sys
from pathlib import Path

import pytest

from runtime import worker_process
from runtime.errors import ConfigError
from runtime.wire import new_ipc_address


@pytest.mark.parametrize(
    ("returncode", "words"), [(0, "exit code 0"), (3, "exit code 3"), (-9, "SIGKILL"), (-63, "63")]
)
def test_the_end_of_a_process_is_told_in_words(returncode: int, words: str) -> None:
    assert words in worker_process.describe_exit(returncode)


def test_a_temporary_folder_with_a_long_path_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 90)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with worker_process.private_folder() as folder:
        assert deep not in folder.parents
        assert new_ipc_address(folder)
    assert not folder.exists()


def test_without_any_short_temporary_folder_the_setting_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_process, "MAX_IPC_PATH_BYTES", 10)
    with pytest.raises(ConfigError, match="TMPDIR"), worker_process.private_folder():
        pass


def test_a_child_of_a_source_tree_finds_the_same_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    environment = worker_process.environment()
    assert environment["PYTHONPATH"].split(os.pathsep) == [
        str(worker_process.PACKAGE_ROOT),
        "elsewhere",
    ]


def test_an_installed_package_is_not_put_before_the_standard_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    monkeypatch.setattr(worker_process, "PACKAGE_ROOT", Path(sys.prefix) / "site-packages")
    assert worker_process.environment()["PYTHONPATH"] == "elsewhere"


def test_threads_spin_shortly_unless_the_operator_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    assert worker_process.environment()["GOMP_SPINCOUNT"] == worker_process.SPIN_ROUNDS
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    assert "GOMP_SPINCOUNT" not in worker_process.environment()


def test_the_child_has_the_redis_that_it_is_given_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    variable = worker_process.CACHE_REDIS_VARIABLE
    monkeypatch.setenv(variable, "redis://of-the-environment/0")
    given = worker_process.environment("redis://of-a-flag/0")
    assert given[variable] == "redis://of-a-flag/0"
    assert variable not in worker_process.environment()
