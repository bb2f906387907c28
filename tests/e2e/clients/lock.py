"""Renews the clients' locks: `python -m tests.e2e.clients.lock [CLIENT ...]`, `make lock-clients`.

A client's own version is in its requirements.in or package.json; the lock has what comes with it.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.e2e.clients.client import CLIENTS, FUZZER, Client, Platform
from tests.model_file import ROOT

HEADER = "# Made by `make lock-clients`; installed with --no-deps.\n"
OPTIONS = (
    *("-q", "--generate-hashes", "--strip-extras", "--no-annotate", "--no-header"),
    *("--no-emit-index-url", "--no-emit-find-links", "--no-emit-options"),
)


def main(names: list[str]) -> None:
    """Raises: subprocess.CalledProcessError."""
    for client in (*CLIENTS, FUZZER):
        if not names or client.name in names:
            print(f"radixgate: locking {client.name}", flush=True)
            lock = _lock_python if client.platform is Platform.PYTHON else _lock_node
            lock(client)


def _lock_python(client: Client) -> None:
    lock = client.folder / "requirements.lock"
    lock.unlink(missing_ok=True)
    left_out = [f"--unsafe-package={name}" for name in _left_out(client)]
    source = client.folder / "requirements.in"
    torch = ["-c", str(ROOT / "requirements-torch.lock")] if client.borrowed else []
    command = [sys.executable, "-m", "piptools", "compile", *OPTIONS, *left_out, *torch]
    subprocess.run([*command, "-o", str(lock), str(source)], check=True)
    kept = [line for line in lock.read_text().splitlines(True) if not line.startswith("#")]
    lock.write_text(HEADER + "".join(kept))


def _left_out(client: Client) -> list[str]:
    """What is borrowed is not locked, nor what comes with torch for CUDA only."""
    cuda = re.findall(r"^([\w.-]+)==", (ROOT / "requirements-cuda.lock").read_text(), re.M)
    return ["pip", *client.borrowed, *(["setuptools", *cuda] if client.borrowed else [])]


def _lock_node(client: Client) -> None:
    """Without the addresses that this machine has its packages from."""
    with TemporaryDirectory() as folder:
        shutil.copy(client.folder / "package.json", folder)
        options = ["--package-lock-only", "--ignore-scripts", "--omit-lockfile-registry-resolved"]
        subprocess.run(["npm", "install", *options, "--no-audit"], cwd=folder, check=True)
        shutil.copy(Path(folder) / "package-lock.json", client.folder)


if __name__ == "__main__":
    main(sys.argv[1:])
