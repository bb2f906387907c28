"""The servers that a bench compares: how each is started, found and ended.

A command gets a free port, a session of its own and a log in a temporary file; nothing of it is
left after the block. A URL is of a server that someone else runs.
"""

import asyncio
import os
import shlex
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import PurePath
from typing import IO, Any

import aiohttp

from gateway.settings import describe_settings
from tests.bench.client import client_session
from tests.model_file import ROOT

_MODEL_DIR = "RADIXGATE_MODEL_DIR"
_POLL_S = 0.02
# A peer may compile kernels when it first starts.
_START_TIMEOUT_S = 600.0
_END_TIMEOUT_S = 60.0
_LOG_TAIL_CHARS = 2000


class ServerError(Exception):
    """A server that cannot be measured; the message says why, with the end of its log."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A server to measure. `target` is a command in which {port} is replaced, or a URL (with /v1)
    of one that runs. `restarts` = started anew for each number of clients, else once a round.
    `model` None = the first that the server lists. `api_key` is what the first answer needs."""

    name: str
    target: str
    model: str | None = None
    restarts: bool = False
    variables: tuple[tuple[str, str], ...] = ()
    api_key: str | None = None

    @property
    def is_command(self) -> bool:
        return not self.target.startswith(("http://", "https://"))

    def describe(self) -> str:
        """The command without folders, which are this machine's business; or the URL."""
        if not self.is_command:
            return self.target
        settings = [f"{name}={value}" for name, value in self.variables]
        return shlex.join([*settings, *map(without_folders, shlex.split(self.target))])


def without_folders(word: str) -> str:
    """The last part of an absolute path; anything else as it is."""
    return PurePath(word).name if word.startswith("/") else word


def product(**variables: str) -> Contender:
    """The server of this checkout, with the settings of the environment and these."""
    command = [sys.executable, "-m", "gateway.cli", "serve", "--host", "127.0.0.1", "--port"]
    settings = {**_settings_of(os.environ), **variables}
    return Contender(
        name="radixgate",
        target=shlex.join([*command, "{port}"]),
        restarts=True,
        variables=tuple(settings.items()),
    )


def _settings_of(environ: Mapping[str, str]) -> dict[str, str]:
    """What in the environment configures a server; no secrets, and no folder of this machine."""
    shown = [info.variable for info in describe_settings() if not info.is_secret]
    return {name: environ[name] for name in shown if name in environ and name != _MODEL_DIR}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server that answers. `base_url` ends in /v1. `pid` and `start_s`, from the start of its
    process to its first answer, are None for one that someone else runs."""

    base_url: str
    model: str
    version: str | None
    pid: int | None = None
    start_s: float | None = None


@asynccontextmanager
async def running(contender: Contender) -> AsyncIterator[Endpoint]:
    """The contender, ready; a command is ended after the block.

    Raises: ServerError where it does not start or does not answer.
    """
    if not contender.is_command:
        yield await _first_answer(contender.target.rstrip("/"), contender)
        return
    port = _free_port()
    command = contender.target.replace("{port}", str(port))
    with tempfile.TemporaryFile() as log:
        start_s = time.perf_counter()
        process = await _spawn(command, dict(contender.variables), log)
        try:
            endpoint = await _first_answer(
                f"http://127.0.0.1:{port}/v1", contender, process=process, log=log
            )
            took_s = time.perf_counter() - start_s
            yield Endpoint(endpoint.base_url, endpoint.model, endpoint.version, process.pid, took_s)
        finally:
            await _end(process)


async def _spawn(
    command: str, variables: dict[str, str], log: IO[bytes]
) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *shlex.split(command),
            cwd=ROOT,
            env={**os.environ, **variables},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    except OSError as error:
        raise ServerError(f"cannot start `{command}`: {error.strerror}") from None


async def _first_answer(
    base_url: str,
    contender: Contender,
    *,
    process: asyncio.subprocess.Process | None = None,
    log: IO[bytes] | None = None,
) -> Endpoint:
    """Asks for one token until it comes; without a process, which may be loading, only once."""
    deadline_s = time.perf_counter() + _START_TIMEOUT_S
    async with client_session(contender.api_key) as session:
        while True:
            try:
                return await _ask(session, base_url, contender.model)
            except (aiohttp.ClientError, TimeoutError) as error:
                if process is None:
                    raise ServerError(f"{base_url} does not answer: {error}") from None
            if process.returncode is not None:
                raise ServerError(f"{contender.name} ended at start:\n{_tail(log)}")
            if time.perf_counter() > deadline_s:
                raise ServerError(f"{contender.name} does not answer:\n{_tail(log)}")
            await asyncio.sleep(_POLL_S)


async def _ask(session: aiohttp.ClientSession, base_url: str, model: str | None) -> Endpoint:
    """Raises: aiohttp.ClientError where a request is refused."""
    if model is None:
        async with session.get(f"{base_url}/models", raise_for_status=True) as reply:
            model = str((await reply.json())["data"][0]["id"])
    body = {"model": model, "max_tokens": 1, "messages": [{"role": "user", "content": "Hello"}]}
    url = f"{base_url}/chat/completions"
    async with session.post(url, json=body, raise_for_status=True) as reply:
        await reply.read()
    return Endpoint(base_url, model, await _version(session, base_url))


async def _version(session: aiohttp.ClientSession, base_url: str) -> str | None:
    """As GET /version says, which this server and vLLM have."""
    async with session.get(base_url.removesuffix("/v1") + "/version") as reply:
        if reply.status != 200:
            return None
        answer: dict[str, Any] = await reply.json()
        return str(answer.get("version"))


async def _end(process: asyncio.subprocess.Process) -> None:
    """Asks it to end, then makes its whole process group end."""
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), _END_TIMEOUT_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _tail(log: IO[bytes] | None) -> str:
    if log is None:
        return ""
    log.seek(0)
    return log.read().decode(errors="replace")[-_LOG_TAIL_CHARS:]
