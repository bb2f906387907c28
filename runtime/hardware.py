"""What this machine can do, asked once at start, and what depends on the kind of device.

With runtime/config.py the only place where devices have names.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from runtime.native.build import can_build
from runtime.native.instruction_sets import choose_instruction_set

_CPU_INFO = Path("/proc/cpuinfo")

IntArray = npt.NDArray[np.int32] | npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Hardware:
    """`cpu_flags` are the kernel's names of the instruction sets; empty where it has none.
    `can_run_native_step`: the C++ step was built before, or there is a compiler."""

    cpu_flags: frozenset[str]
    has_cuda: bool
    can_run_native_step: bool = False

    @property
    def has_fast_cpu_bfloat16(self) -> bool:
        """Without these instructions bfloat16 matmuls are several times slower than float32."""
        return not self.cpu_flags.isdisjoint({"avx512_bf16", "amx_bf16"})


def detect_hardware() -> Hardware:
    """Reads the CPU's flags and asks torch for a GPU and looks for a compiler."""
    cpu_flags = _read_cpu_flags()
    return Hardware(
        cpu_flags=cpu_flags,
        has_cuda=torch.cuda.is_available(),
        can_run_native_step=can_build(choose_instruction_set(cpu_flags)),
    )


def allocate_zeroed(
    shape: tuple[int, ...], dtype: torch.dtype, *, device: torch.device
) -> torch.Tensor:
    """Zeros. On the CPU the memory is taken from the system only when it is first touched: filling
    512 MiB costs 0.4 s of the start and makes an idle server large."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    untouched = np.zeros(math.prod(shape) * dtype.itemsize, dtype=np.uint8)
    return torch.from_numpy(untouched).view(dtype).view(shape)


def to_device(array: IntArray, device: torch.device) -> torch.Tensor:
    """A tensor with the array's values, which the CPU's shares with it. For another device the copy
    goes through pinned memory, so that nobody waits for it and the array may change at once."""
    tensor = torch.from_numpy(array)
    if device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


def to_host(tensor: torch.Tensor) -> npt.NDArray[np.int32]:
    """Waits for the device. tensor: int32. A step calls it once."""
    copied: npt.NDArray[np.int32] = tensor.cpu().numpy()
    return copied


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
