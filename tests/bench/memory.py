"""Memory of a server: the proportional set size, summed over all its processes.

PSS counts a page that n processes share as 1/n in each, so the sum over a tree is what the tree
takes. Linux only; the kernel keeps no high-water mark of it, so it is looked at each second.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
# Reading it walks all pages of the process: 10 ms of a core for 1 GB.
_INTERVAL_S = 1.0


@dataclass(slots=True)
class PeakMemory:
    """The largest sum seen so far; 0 before the first look."""

    pss_bytes: int = 0


@asynccontextmanager
async def watch_memory(pid: int | None) -> AsyncIterator[PeakMemory]:
    """Looks at the process and its descendants once a second and at the end. None: never."""
    peak = PeakMemory()
    if pid is None:
        yield peak
        return
    watcher = asyncio.create_task(_watch(pid, peak))
    try:
        yield peak
        peak.pss_bytes = max(peak.pss_bytes, tree_pss_bytes(pid))
    finally:
        watcher.cancel()


async def _watch(pid: int, peak: PeakMemory) -> None:
    while True:
        pss_bytes = await asyncio.to_thread(tree_pss_bytes, pid)
        peak.pss_bytes = max(peak.pss_bytes, pss_bytes)
        await asyncio.sleep(_INTERVAL_S)


def tree_pss_bytes(pid: int) -> int:
    """The sum over the process and all its descendants; one that ends meanwhile counts 0."""
    return sum(_pss_bytes(member) for member in process_tree(pid))


def process_tree(pid: int) -> Iterator[int]:
    """The process and its descendants."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (parent := _parent(entry)) is not None:
            children.setdefault(parent, []).append(int(entry.name))
    reached = [pid]
    while reached:
        member = reached.pop()
        yield member
        reached.extend(children.get(member, ()))


def _parent(entry: Path) -> int | None:
    try:
        stat = (entry / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The name, in parentheses, may hold anything; state and parent follow it.
    return int(stat.rpartition(")")[2].split()[1])


def _pss_bytes(pid: int) -> int:
    try:
        lines = (_PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)
