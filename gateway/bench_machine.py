"""The machine and process that a bench itself runs on. Called by `gateway.bench_session`."""

import asyncio
import os
import platform
import resource
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from telemetry.bench_run import ClientMachine

# Descriptors beside those of connections.
_SPARE_FILES = 64


def this_machine() -> ClientMachine:
    loop = loop_factory()
    return ClientMachine(
        processor=_processor(),
        num_cpus=len(os.sched_getaffinity(0)),
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        event_loop="asyncio" if loop is None else loop.__module__.partition(".")[0],
    )


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """None = asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def allow_files(num_connections: int) -> None:
    """As far as this process may allow them to itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = num_connections + _SPARE_FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def bench_version() -> str:
    try:
        return version("radixgate")
    except PackageNotFoundError:
        return "unknown"
