"""What this machine can do: asked once at start, then plain data for runtime.config.resolve."""

from dataclasses import dataclass
from pathlib import Path

import torch

_CPU_INFO = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True)
class Hardware:
    """`cpu_flags` are the kernel's names of the instruction sets; empty where it has none."""

    cpu_flags: frozenset[str]
    has_cuda: bool

    @property
    def has_fast_cpu_bfloat16(self) -> bool:
        """Without these instructions bfloat16 matmuls are several times slower than float32."""
        return not self.cpu_flags.isdisjoint({"avx512_bf16", "amx_bf16"})


def detect_hardware() -> Hardware:
    """Reads the CPU's flags and asks torch for a GPU."""
    return Hardware(cpu_flags=_read_cpu_flags(), has_cuda=torch.cuda.is_available())


def _read_cpu_flags() -> frozenset[str]:
    try:
        lines = _CPU_INFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        return frozenset()
    for line in lines:
        name, _, flags = line.partition(":")
        if name.strip() == "flags":
            return frozenset(flags.split())
    return frozenset()
