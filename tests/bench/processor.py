"""Who used the processor while a load ran: a figure from a busy machine says so itself. Linux only.

What is neither the server's process tree nor this process is other work; time that a hypervisor
gave to other machines is counted with it.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from tests.bench.memory import process_tree

_PROC = Path("/proc")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class ProcessorTimes:
    """Seconds of processor time until `at_s`. `server_s` is None for a server that someone else
    runs."""

    at_s: float
    busy_s: float
    client_s: float
    server_s: float | None

    @classmethod
    def now(cls, server_pid: int | None) -> "ProcessorTimes":
        return cls(
            at_s=time.perf_counter(),
            busy_s=busy_seconds((_PROC / "stat").read_text()),
            client_s=time.process_time(),
            server_s=None if server_pid is None else tree_seconds(server_pid),
        )

    def other_cores_since(self, start: "ProcessorTimes") -> float | None:
        """Cores that other work kept busy, on average; never less than none."""
        if self.server_s is None or start.server_s is None:
            return None
        ours_s = self.client_s - start.client_s + self.server_s - start.server_s
        return max(0.0, self.busy_s - start.busy_s - ours_s) / (self.at_s - start.at_s)

    def describe_since(self, start: "ProcessorTimes") -> str:
        cores = self.other_cores_since(start)
        return f"other work took {cores:.2f} cores" if cores is not None else "others unknown"


def busy_seconds(stat: str) -> float:
    """From the text of /proc/stat (proc_stat(5)): user, nice, system, irq, softirq and steal."""
    name, *ticks = stat.splitlines()[0].split()
    assert name == "cpu"
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, ticks[:8])
    return (user + nice + system + irq + softirq + steal) / _TICKS_PER_S


def tree_seconds(pid: int) -> float:
    """Of the process and its descendants, those included that have ended and were waited for."""
    return sum(_process_ticks(member) for member in process_tree(pid)) / _TICKS_PER_S


def process_seconds(pid: int) -> float:
    """Of the process alone, and of its children that have ended and were waited for."""
    return _process_ticks(pid) / _TICKS_PER_S


def _process_ticks(pid: int) -> int:
    """utime, stime, cutime and cstime, fields 14 to 17 of proc_pid_stat(5)."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return 0
    # The second field, the name in parentheses, may hold anything.
    return sum(map(int, stat.rpartition(")")[2].split()[11:15]))
