"""What stands beside every figure: hardware, commit, versions."""

import os
import platform
import subprocess
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tests.model_file import ROOT

# Those that decide which kernels can run.
_TELLING_FLAGS = (
    "avx2",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_int8",
    "amx_bf16",
    "asimd",
    "i8mm",
    "sve",
)
_PACKAGES = ("torch", "llguidance", "xgrammar", "aiohttp")


@dataclass(frozen=True, slots=True)
class Machine:
    """`load_average` is of the minute before the run: what else the cores had to do."""

    cpu: str
    num_cores: int
    cpu_flags: tuple[str, ...]
    memory_gib: float
    load_average: float
    commit: str
    versions: dict[str, str]

    def describe(self) -> str:
        flags = " ".join(self.cpu_flags) or "no known vector instructions"
        versions = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        return (
            f"{self.num_cores} cores, {self.cpu} ({flags}), {self.memory_gib:.0f} GiB;"
            f" load average before the run {self.load_average:.1f};"
            f" commit {self.commit}; {versions}"
        )


def this_machine() -> Machine:
    cpu_info = _cpu_info()
    flags = (cpu_info.get("flags") or cpu_info.get("Features") or "").split()
    return Machine(
        cpu=cpu_info.get("model name") or platform.machine(),
        num_cores=len(os.sched_getaffinity(0)),
        cpu_flags=tuple(flag for flag in _TELLING_FLAGS if flag in flags),
        memory_gib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30,
        load_average=os.getloadavg()[0],
        commit=_commit(),
        versions={"python": platform.python_version(), **_package_versions()},
    )


def _cpu_info() -> dict[str, str]:
    """The first processor's entries as Linux names them; empty where there are none."""
    try:
        first = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _package_versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
