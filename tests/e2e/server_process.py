"""`radixgate serve` as a child process: its output, its URL, its end."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import httpx2

from tests.conformance.target import Target
from tests.model_file import ROOT

# Imports and weights take 3 s on idle cores; a build machine's are shared.
START_S = 90.0
END_S = 60.0
POLL_S = 0.01
SERVING = re.compile(r"serving (?P<model>\S+) at (?P<url>http\S+)/v1")


class ServerProcess:
    """Started by the constructor; `flags` are the command line, `variables` the settings."""

    def __init__(self, *flags: str, **variables: str) -> None:
        self.stdout: list[str] = []
        self.stderr: list[str] = []
        self._changed = threading.Condition()
        self._num_open = 2
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "gateway.cli", "serve", *flags],
            cwd=ROOT,
            env=environment(variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._readers = [
            self._start_reader(self._popen.stdout, self.stdout),
            self._start_reader(self._popen.stderr, self.stderr),
        ]

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def is_running(self) -> bool:
        return self._popen.poll() is None

    def wait_target(self) -> Target:
        """The server and its model, once it says that it serves. Raises: RuntimeError."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_banner() or self._num_open == 0, START_S)
        if not self._has_banner():
            raise RuntimeError(f"the server does not serve:\n{self.output()}")
        found = SERVING.search("\n".join(self.stdout))
        assert found is not None, self.output()
        return Target(found["url"], found["model"])

    def _has_banner(self) -> bool:
        """Whether the last line of the start is out."""
        return bool(self.stdout) and self.stdout[-1].startswith("curl ")

    def signal(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def wait(self, timeout_s: float = END_S) -> int:
        """The exit code, with all output read. Raises: subprocess.TimeoutExpired."""
        code = self._popen.wait(timeout_s)
        for reader in self._readers:
            reader.join(timeout_s)
        return code

    def stop(self) -> int:
        """Asks it to end, makes it end, and gives the exit code."""
        if self.is_running:
            self.signal(signal.SIGTERM)
        try:
            return self.wait()
        finally:
            self._popen.kill()
            self._popen.wait()

    def output(self) -> str:
        return "\n".join(["stdout:", *self.stdout[-20:], "stderr:", *self.stderr[-60:]])

    def _start_reader(self, stream: IO[str] | None, lines: list[str]) -> threading.Thread:
        assert stream is not None
        reader = threading.Thread(target=self._read, args=(stream, lines), daemon=True)
        reader.start()
        return reader

    def _read(self, stream: IO[str], lines: list[str]) -> None:
        with stream:
            for line in stream:
                with self._changed:
                    lines.append(line.rstrip("\n"))
                    self._changed.notify_all()
        with self._changed:
            self._num_open -= 1
            self._changed.notify_all()


# Servers that run now: what they wrote is shown beside the test that failed.
running: list[ServerProcess] = []


@contextmanager
def serving(*flags: str, **variables: str) -> Iterator[tuple[ServerProcess, Target]]:
    """A server on a free port that takes requests; it is gone after the block."""
    server = ServerProcess("--port", "0", *flags, **variables)
    running.append(server)
    try:
        yield server, server.wait_target()
    finally:
        server.stop()
        running.remove(server)


def environment(variables: dict[str, str]) -> dict[str, str]:
    """Ours without what would configure a server, and `variables`: settings, to which RADIXGATE_
    is added, and OTEL_ ones as they are."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("HOST", "PORT") and not name.startswith(("RADIXGATE_", "OTEL_"))
    }
    ours = {
        name if name.startswith("OTEL_") else f"RADIXGATE_{name.upper()}": value
        for name, value in variables.items()
    }
    return {**kept, "OMP_NUM_THREADS": "1", **ours}


async def until_status(client: httpx2.AsyncClient, status: int, *, timeout_s: float) -> None:
    """Asks /ready until it answers so. Raises: TimeoutError."""
    async with asyncio.timeout(timeout_s):
        while (await client.get("/ready")).status_code != status:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)


async def greedy_text(target: Target, **parameters: Any) -> str:
    """What the model always says to this; it changes if a request harmed the engine."""
    async with target.http() as client:
        response = await client.post("/v1/chat/completions", json=target.chat(**parameters))
    assert response.status_code == 200, response.text
    text: str = response.json()["choices"][0]["message"]["content"]
    return text
