"""What the kernel knows of a server's processes: its children, and when one of them has ended."""

import asyncio
import os
import select
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROC = Path("/proc")


def runtime_child(server_pid: int) -> int:
    """The runtime's process id. Fails unless the server has exactly one."""
    (child,) = [pid for pid in _children(server_pid) if b"runtime.worker" in _command(pid)]
    return child


@contextmanager
def watched(pid: int) -> Iterator[int]:
    """A descriptor that stays with this process even where its id is given to another."""
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


async def ended(descriptor: int, *, timeout_s: float) -> bool:
    """Whether the watched process ends within the time."""
    readable, _, _ = await asyncio.to_thread(select.select, [descriptor], [], [], timeout_s)
    return bool(readable)


def _children(pid: int) -> list[int]:
    return [int(entry.name) for entry in PROC.glob("[0-9]*") if _parent(entry) == pid]


def _parent(entry: Path) -> int | None:
    try:
        # The name in parentheses may hold anything, so fields are counted after it.
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # it has just ended
        return None


def _command(pid: int) -> bytes:
    try:
        return (PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return b""
