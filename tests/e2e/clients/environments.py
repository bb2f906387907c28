"""One environment a client, made of its lock under .cache/clients, kept until the lock changes.

`python -m tests.e2e.clients.environments` makes them all, two at a time (`make clients`).
"""

import argparse
import fcntl
import hashlib
import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

from tests.e2e.clients.client import CLIENTS, FUZZER, HERE, Client, Platform
from tests.model_file import ROOT

FOLDER = ROOT / ".cache/clients"
OLDEST_NODE = 20
# Downloads of up to 200 MB, over a slow line too.
BUILD_S = 900.0
PROBE_S = 20.0
NUM_AT_ONCE = 2
ERROR = re.compile(r"^(?:ERROR:|npm error) *(.+)", re.M)


class BuildError(Exception):
    """An environment could not be made; the message is one line that says what to do."""


def missing_platform(client: Client) -> str | None:
    """Why this machine cannot run the client; None where it can."""
    if client.platform is Platform.PYTHON:
        return None
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        return "Node.js is not here; its clients need Node 20 or newer with npm"
    shown = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=PROBE_S)
    found = re.match(r"v(\d+)\.", shown.stdout)
    if found is None or int(found[1]) < OLDEST_NODE:
        return f"Node.js {shown.stdout.strip()} is older than {OLDEST_NODE}"
    return None


def environment(client: Client) -> Path:
    """The folder of the client's environment, which is made where it is not there.

    Processes that want the same one wait for each other. Raises: BuildError.
    """
    folder = FOLDER / client.name
    with _locked(client):
        stamp = folder / ".lock-sha256"
        digest = _digest(client)
        if not stamp.is_file() or stamp.read_text() != digest:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            install = _install_python if client.platform is Platform.PYTHON else _install_node
            install(client, folder)
            stamp.write_text(digest)
        if client.platform is Platform.NODE:
            # node looks for packages beside the script only.
            shutil.copy(client.folder / client.platform.check, folder)
            shutil.copy(HERE / "kit/features.mjs", folder)
    return folder


def python_of(folder: Path) -> Path:
    return folder / "bin/python"


def _digest(client: Client) -> str:
    """What an environment depends on: the lock, the interpreter and how this module installs."""
    parts = [(client.folder / name).read_bytes() for name in client.platform.locks]
    parts += [sys.executable.encode(), sys.version.encode(), Path(__file__).read_bytes()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


@contextmanager
def _locked(client: Client) -> Iterator[None]:
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / f"{client.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _install_python(client: Client, folder: Path) -> None:
    # Without a pip of its own, which takes longer to install than most clients.
    _run(client, [sys.executable, "-m", "venv", "--without-pip", str(folder)], cwd=folder)
    lock = client.folder / "requirements.lock"
    pip = [sys.executable, "-m", "pip", "--python", str(python_of(folder)), "install"]
    options = ["--no-input", "--no-deps", "--no-compile", "--require-hashes", "--retries", "2"]
    _run(client, [*pip, *options, "--progress-bar", "off", "-r", str(lock)], cwd=folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    for name in client.borrowed:
        _link(name, packages)


def _link(name: str, packages: Path) -> None:
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations:
        (packages / name).symlink_to(Path(next(iter(spec.submodule_search_locations))))


def _install_node(client: Client, folder: Path) -> None:
    for name in client.platform.locks:
        shutil.copy(client.folder / name, folder)
    _run(client, ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=folder)


def _run(client: Client, command: list[str], *, cwd: Path) -> None:
    """Runs one step; its output goes to a log. Raises: BuildError."""
    log = FOLDER / f"{client.name}.log"
    with log.open("wb") as file:
        try:
            done = subprocess.run(
                command,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=BUILD_S,
            )
        except subprocess.TimeoutExpired:
            raise BuildError(f"{client.name}: no end after {BUILD_S:.0f} s ({log})") from None
    if done.returncode != 0:
        found = ERROR.findall(log.read_text(errors="replace")) or ["it failed"]
        # pip says last what is wrong, npm first.
        reason = found[-1 if client.platform is Platform.PYTHON else 0][:200]
        raise BuildError(
            f"could not install the client {client.name}: {reason} (whole log: {log})."
            " Is the package registry reachable? Then run make again."
        )


def _build(client: Client) -> str | None:
    """Prints what was done. Returns the one line that says why it could not be."""
    reason = missing_platform(client)
    if reason is not None:
        print(f"radixgate: without the client {client.name}: {reason}", flush=True)
        return None
    start = monotonic()
    try:
        environment(client)
    except BuildError as error:
        return str(error)
    print(f"radixgate: client {client.name} ready in {monotonic() - start:.1f} s", flush=True)
    return None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.clients.environments")
    parser.add_argument("--wide", action="store_true", help="also those of `make e2e-all`")
    is_wide = parser.parse_args().wide
    clients = [client for client in (*CLIENTS, FUZZER) if is_wide or not client.is_wide]
    with ThreadPoolExecutor(NUM_AT_ONCE) as workers:
        failures = [failure for failure in workers.map(_build, clients) if failure]
    for failure in failures:
        print(f"radixgate: {failure}", file=sys.stderr)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
