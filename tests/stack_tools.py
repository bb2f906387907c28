"""Prometheus and its promtool from Debian's package, unpacked under .cache/tools: nothing is
installed, so that no rights are needed. `python -m tests.stack_tools` fetches (`make stack-tools`).
"""

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.model_file import ROOT

FOLDER = ROOT / ".cache/tools"
PACKAGE = "prometheus"
_FETCH_S = 300.0


class FetchError(Exception):
    """The package cannot be had; the message is one line."""


@dataclass(frozen=True, slots=True)
class StackTools:
    """Where the programs are."""

    prometheus: Path
    promtool: Path

    @property
    def are_there(self) -> bool:
        return self.prometheus.is_file() and self.promtool.is_file()


TOOLS = StackTools(FOLDER / "usr/bin/prometheus", FOLDER / "usr/bin/promtool")


def fetch() -> None:
    """Raises: FetchError."""
    if TOOLS.are_there:
        return
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise FetchError("Prometheus comes as a package of Debian, and apt-get is not here")
    FOLDER.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER.parent) as name:
        folder = Path(name)
        folder.chmod(0o755)  # apt fetches as a user of its own
        if not _download(folder):
            _run("apt-get", "update", "-q", cwd=folder)
            if not _download(folder):
                raise FetchError(f"apt-get cannot download {PACKAGE}: is the registry reachable?")
        (package,) = folder.glob("*.deb")
        unpacked = folder / "unpacked"
        _run("dpkg-deb", "-x", str(package), str(unpacked), cwd=folder)
        shutil.rmtree(FOLDER, ignore_errors=True)
        unpacked.rename(FOLDER)


def _download(folder: Path) -> bool:
    return _run("apt-get", "download", "-q", PACKAGE, cwd=folder) and any(folder.glob("*.deb"))


def _run(*command: str, cwd: Path) -> bool:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, timeout=_FETCH_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def tools_or_skip() -> StackTools:
    """Skips the test where they are not here, but for CI, which shall prove all."""
    if not TOOLS.are_there:
        assert not os.environ.get("CI"), "`make stack-tools` has to come before"
        pytest.skip("Prometheus is not here; `make stack-tools` fetches it with apt-get")
    return TOOLS


def main() -> int:
    """Exit code 1 only in CI: elsewhere the tests that need the programs say why they skip."""
    try:
        fetch()
    except FetchError as error:
        sys.stderr.write(f"radixgate: {error}; the tests that need it are skipped\n")
        return 1 if os.environ.get("CI") else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
