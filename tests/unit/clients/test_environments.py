"""Environments of clients: made once a lock, made again for another, one line where that fails."""

import subprocess
from pathlib import Path

import pytest

from tests.e2e.clients import environments
from tests.e2e.clients.client import CLIENTS, Client, Platform
from tests.e2e.clients.environments import BuildError, environment, missing_platform

OURS = Client("ours", "ours")
NODE = Client("node", "node", Platform.NODE)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands of a build, which do nothing but succeed."""
    commands: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        (tmp_path / "made/ours/lib/python3/site-packages").mkdir(parents=True, exist_ok=True)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(environments, "FOLDER", tmp_path / "made")
    monkeypatch.setattr("tests.e2e.clients.client.HERE", tmp_path)
    monkeypatch.setattr("subprocess.run", run)
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours/requirements.lock").write_text("a==1")
    return commands


def test_environment_is_made_once_for_a_lock(tmp_path: Path, runs: list[list[str]]) -> None:
    folder = environment(OURS)
    num_runs = len(runs)
    assert (folder, num_runs) == (tmp_path / "made/ours", 2)
    assert environment(OURS) == folder
    assert len(runs) == num_runs


def test_another_lock_makes_it_anew(tmp_path: Path, runs: list[list[str]]) -> None:
    folder = environment(OURS)
    (folder / "stale").touch()
    num_runs = len(runs)
    (tmp_path / "ours/requirements.lock").write_text("a==2")
    environment(OURS)
    assert len(runs) == 2 * num_runs
    assert not (folder / "stale").exists()


def test_build_that_failed_is_one_line_and_is_tried_again(
    runs: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    succeed = subprocess.run

    def fail(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        log = options["stdout"]
        log.write(b"Collecting a\nERROR: No matching distribution found for a==1\n")  # type: ignore[attr-defined]
        return subprocess.CompletedProcess(command, 1, "", "")

    monkeypatch.setattr("subprocess.run", fail)
    with pytest.raises(BuildError, match="client ours: No matching distribution") as raised:
        environment(OURS)
    assert "\n" not in str(raised.value)
    monkeypatch.setattr("subprocess.run", succeed)
    environment(OURS)
    assert len(runs) == 2


@pytest.mark.parametrize(
    ("shown", "reason"),
    [("v20.1.0", None), ("v22.0.0", None), ("v18.19.1", "Node.js v18.19.1 is older than 20")],
)
def test_node_must_be_new_enough(
    shown: str, reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(
        "subprocess.run", lambda *_, **__: subprocess.CompletedProcess([], 0, shown + "\n", "")
    )
    assert missing_platform(NODE) == reason
    assert missing_platform(OURS) is None


def test_without_node_its_clients_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert "Node.js is not here" in (missing_platform(NODE) or "")


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_every_client_has_its_check_and_locks_with_hashes(client: Client) -> None:
    assert (client.folder / client.platform.check).is_file()
    lock = (client.folder / client.platform.locks[0]).read_text()
    marks = ("==", "--hash=") if client.platform is Platform.PYTHON else ('"version"', '"sha512-')
    assert all(mark in lock for mark in marks)
    assert "http" not in "".join(line for line in lock.splitlines() if "resolved" in line)
