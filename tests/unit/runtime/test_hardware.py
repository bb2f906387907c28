"""Reading the CPU's flags, and zeroed memory."""

from pathlib import Path

import numpy as np
import pytest
import torch

from runtime import hardware


def test_flags_are_those_of_the_first_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpuinfo").write_text("model name : X\nflags\t\t: fpu avx512_bf16\n\nflags : no\n")
    monkeypatch.setattr(hardware, "_CPU_INFO", tmp_path / "cpuinfo")
    assert hardware.detect_hardware().cpu_flags == {"fpu", "avx512_bf16"}


def test_a_system_without_the_file_has_no_flags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "_CPU_INFO", tmp_path / "absent")
    assert hardware.detect_hardware().cpu_flags == frozenset()
    assert not hardware.detect_hardware().has_fast_cpu_bfloat16


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_allocated_memory_is_zero_and_writable(dtype: torch.dtype) -> None:
    memory = hardware.allocate_zeroed((2, 3, 4), dtype, device=torch.device("cpu"))
    assert memory.shape == (2, 3, 4)
    assert memory.dtype == dtype
    assert not memory.any()
    memory += 1
    assert memory.sum() == 24


def test_a_round_trip_keeps_the_values() -> None:
    sent = np.array([[1, -2], [3, 4]], dtype=np.int32)
    on_device = hardware.to_device(sent, torch.device("cpu"))
    assert on_device.dtype == torch.int32
    assert hardware.to_host(on_device).tolist() == sent.tolist()
