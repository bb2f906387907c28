"""deploy/make_secrets.sh makes what the services read, once."""

import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from gateway.accounts import Account, digest_of
from gateway.key_file import read_key_file
from gateway.settings import Settings
from tests.compose_file import load, services
from tests.model_file import ROOT


@pytest.fixture
def deploy(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "deploy/make_secrets.sh", tmp_path)
    return tmp_path


def make(deploy: Path, *, umask: int = 0o022) -> str:
    program = ["sh", str(deploy / "make_secrets.sh")]
    done = subprocess.run(program, capture_output=True, text=True, check=True, cwd="/", umask=umask)
    return done.stdout


def contents(deploy: Path) -> dict[str, str]:
    folder = deploy / "secrets"
    return {str(f.relative_to(folder)): f.read_text() for f in folder.rglob("*") if f.is_file()}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_every_file_that_the_services_mount_is_made(deploy: Path) -> None:
    make(deploy)
    wanted = {secret["file"] for secret in load()["secrets"].values()}
    wanted |= {
        mount.source
        for service in services().values()
        for mount in service.mounts
        if mount.source.startswith("./deploy/secrets/")
    }
    assert {
        name for name in wanted if not (deploy / name.removeprefix("./deploy/")).exists()
    } == set()


def test_a_second_run_changes_nothing_and_says_nothing(deploy: Path) -> None:
    first = make(deploy)
    made = contents(deploy)
    assert first.count("made deploy/secrets/") == len(made) == 8
    assert make(deploy) == ""
    assert contents(deploy) == made


def test_two_folders_have_nothing_in_common(deploy: Path, tmp_path: Path) -> None:
    make(deploy)
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(ROOT / "deploy/make_secrets.sh", other)
    make(other)
    mine, theirs = contents(deploy), contents(other)
    for name in ("server_secret.txt", "grafana_password.txt", "redis_auth.txt", "api_key.txt"):
        assert mine[name] != theirs[name]
        assert re.search(r"[0-9a-f]{64}", mine[name])


@pytest.mark.parametrize("umask", [0, 0o077])
def test_others_on_the_machine_cannot_enter_and_containers_can_read(
    deploy: Path, umask: int
) -> None:
    make(deploy, umask=umask)
    secrets = deploy / "secrets"
    assert mode(secrets) == 0o700
    assert mode(secrets / "keys") == 0o755
    modes = {str(f.relative_to(secrets)): mode(f) for f in secrets.rglob("*") if f.is_file()}
    assert modes.pop("api_key.txt") == 0o600
    assert set(modes.values()) == {0o644}


def test_the_redis_servers_and_their_clients_have_one_password(deploy: Path) -> None:
    make(deploy)
    made = contents(deploy)
    password = made["redis_auth.txt"].removeprefix("requirepass ").strip()
    assert made["redis_url.txt"].strip() == f"redis://:{password}@redis:6379/0"
    assert made["cache_redis_url.txt"].strip() == f"redis://:{password}@redis-cache:6379/0"
    Settings.load({"RADIXGATE_REDIS_URL_FILE": str(deploy / "secrets/redis_url.txt")}, {})


def test_the_key_file_has_hashes_of_the_keys_and_the_one_for_metrics_may_ask_no_model(
    deploy: Path,
) -> None:
    make(deploy)
    made = contents(deploy)
    keys = [made[name].strip() for name in ("api_key.txt", "metrics_key.txt")]
    assert not any(key in made["keys/keys.yaml"] for key in keys)
    operator, prometheus = read_key_file(deploy / "secrets/keys/keys.yaml")
    assert [operator.digest, prometheus.digest] == [digest_of(key) for key in keys]
    assert (operator.role, prometheus.role) == ("admin", "monitor")
    accounts = [Account(models=entry.models) for entry in (operator, prometheus)]
    assert [account.may_use("smollm2-135m-instruct") for account in accounts] == [True, False]
