"""Starts and ends one runtime process (runtime.worker). Called by runtime.supervisor, and by the
command that becomes one."""

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from runtime.errors import ConfigError
from runtime.wire import MAX_IPC_PATH_BYTES
from runtime.worker_options import SUPERVISOR_SIGNAL, WorkerOptions

PACKAGE_ROOT = Path(__file__).resolve().parent.parent

# Where the runtime finds the Redis of its prefix cache. Not among its arguments, which everybody
# on the machine may read.
CACHE_REDIS_VARIABLE = "RADIXGATE_CACHE_REDIS_URL"

# OpenMP's threads wait for each other by spinning, by default for so long that one busy process
# beside them makes a step take many times as long. Measured on two cores in bfloat16, one decode
# row (16 rows) in ms, alone and beside a busy process: 20,000 rounds 18 (33) and 400 (600); 1,000
# rounds 23 (40) and 39 (69); no spinning 29 (50) and 27 (49). The default, 18 (44) alone, did not
# finish beside a busy process within 100 s.
SPIN_VARIABLE, SPIN_ROUNDS = "GOMP_SPINCOUNT", "1000"
OWN_CHOICES = frozenset({SPIN_VARIABLE, "OMP_WAIT_POLICY"})

# "/radixgate-" + 8 random characters + "/" + 12 digits of the socket's name, with some room.
_IPC_NAME_BYTES = 40


async def launch(
    options: WorkerOptions, *, cache_redis_url: str | None = None
) -> asyncio.subprocess.Process:
    """Starts `python -m runtime.worker` with this process's stdout and stderr.

    To be called from a thread that lives as long as the process shall: Linux takes the end of
    the starting thread for the parent's death.

    Raises: OSError if the system cannot start one more process.
    """
    return await asyncio.create_subprocess_exec(
        *command(options),
        stdin=asyncio.subprocess.DEVNULL,
        env=environment(cache_redis_url),
    )


def command(options: WorkerOptions) -> tuple[str, ...]:
    """What is executed."""
    # -P: a folder named `runtime` where the server happens to be started must not shadow ours.
    return (sys.executable, "-P", "-m", "runtime.worker", msgspec.json.encode(options).decode())


async def terminate(process: asyncio.subprocess.Process, *, grace_s: float) -> None:
    """Asks the process to end, kills it after `grace_s`; returns when it is gone."""
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(SUPERVISOR_SIGNAL)
    try:
        async with asyncio.timeout(grace_s):
            await process.wait()
    except TimeoutError:
        await kill(process)


async def kill(process: asyncio.subprocess.Process) -> None:
    """Ends the process, hung or stopped as it may be; returns when it is gone."""
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()


def describe_exit(returncode: int) -> str:
    """How the process ended, in words."""
    if returncode >= 0:
        return f"the runtime ended with exit code {returncode}"
    try:
        name = signal.Signals(-returncode).name
    except ValueError:
        name = f"signal {-returncode}"
    return f"the runtime was ended by {name}"


def read_failure(path: Path) -> str | None:
    """Why the load failed, as the process left it before its exit; None if it could not."""
    try:
        return path.read_text(encoding="utf-8") or None
    except OSError:
        return None


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    """A new folder that only this user can enter, short enough for a socket; removed after use.

    Raises: ConfigError if no temporary folder has a short enough path.
    """
    for base in (tempfile.gettempdir(), "/tmp", "/var/tmp"):
        if len(os.fsencode(base)) + _IPC_NAME_BYTES <= MAX_IPC_PATH_BYTES and Path(base).is_dir():
            break
    else:
        raise ConfigError("the path of the temporary folder is too long for a socket: set TMPDIR")
    with tempfile.TemporaryDirectory(
        prefix="radixgate-", dir=base, ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)


def environment(cache_redis_url: str | None = None) -> dict[str, str]:
    """Ours, so that the child finds the same packages, installed or in a source tree; with a
    short spin of OpenMP's threads, unless the operator has chosen otherwise. Of Redis it has what
    it is given here: a flag may have won over our own variable."""
    variables = dict(os.environ)
    variables.pop(CACHE_REDIS_VARIABLE, None)
    if cache_redis_url is not None:
        variables[CACHE_REDIS_VARIABLE] = cache_redis_url
    if OWN_CHOICES.isdisjoint(variables):
        variables[SPIN_VARIABLE] = SPIN_ROUNDS
    if PACKAGE_ROOT.name not in ("site-packages", "dist-packages"):
        others = variables.get("PYTHONPATH")
        paths = [str(PACKAGE_ROOT), others] if others else [str(PACKAGE_ROOT)]
        variables["PYTHONPATH"] = os.pathsep.join(paths)
    return variables
