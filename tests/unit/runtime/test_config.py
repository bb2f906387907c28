"""Settling the `auto` values."""

from dataclasses import replace

import pytest

from runtime.config import DTypeName, ResolvedConfig, RuntimeConfig, resolve
from runtime.errors import ConfigError
from runtime.hardware import Hardware, detect_hardware

PLAIN = Hardware(cpu_flags=frozenset({"avx2", "avx512f"}), has_cuda=False)
FAST_BF16 = Hardware(cpu_flags=frozenset({"avx2", "avx512_bf16"}), has_cuda=False)
AMX = Hardware(cpu_flags=frozenset({"amx_bf16"}), has_cuda=False)
GPU = Hardware(cpu_flags=frozenset(), has_cuda=True)
NATIVE = Hardware(cpu_flags=frozenset({"avx512_bf16"}), has_cuda=False, can_run_native_step=True)
PLAIN_NATIVE = replace(PLAIN, can_run_native_step=True)
GPU_NATIVE = replace(GPU, can_run_native_step=True)
DTYPES_OF_THE_NATIVE_STEP: tuple[DTypeName, ...] = ("auto", "int8")


@pytest.mark.parametrize(
    ("hardware", "expected"),
    [(PLAIN, "float32"), (FAST_BF16, "bfloat16"), (AMX, "bfloat16"), (GPU, "bfloat16")],
)
def test_auto_takes_bfloat16_only_where_it_is_fast(hardware: Hardware, expected: str) -> None:
    assert resolve(RuntimeConfig(model="m"), hardware).dtype == expected


@pytest.mark.parametrize(
    ("hardware", "torch_dtype"), [(NATIVE, "bfloat16"), (PLAIN_NATIVE, "float32")]
)
def test_auto_is_the_native_step_where_a_cpu_can_run_it(
    hardware: Hardware, torch_dtype: str
) -> None:
    for dtype in DTYPES_OF_THE_NATIVE_STEP:
        resolved = resolve(RuntimeConfig(model="m", dtype=dtype), hardware)
        assert (resolved.dtype, resolved.torch_dtype) == ("int8", torch_dtype)


def test_a_gpu_is_taken_before_the_native_step() -> None:
    assert resolve(RuntimeConfig(model="m"), GPU_NATIVE).dtype == "bfloat16"
    assert resolve(RuntimeConfig(model="m", device="cpu"), GPU_NATIVE).dtype == "int8"


@pytest.mark.parametrize(
    ("hardware", "message"),
    [(PLAIN, r"needs a C\+\+ compiler"), (GPU_NATIVE, "int8 is for the CPU")],
)
def test_the_native_step_where_it_cannot_run_is_an_error(hardware: Hardware, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve(RuntimeConfig(model="m", dtype="int8"), hardware)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_chosen_dtype_is_kept_on_any_hardware(dtype: DTypeName) -> None:
    for hardware in (PLAIN, FAST_BF16, GPU, NATIVE, PLAIN_NATIVE):
        resolved = resolve(RuntimeConfig(model="m", dtype=dtype), hardware)
        assert resolved.dtype == resolved.torch_dtype == dtype


def test_auto_takes_the_gpu_where_there_is_one() -> None:
    assert resolve(RuntimeConfig(model="m"), GPU).device == "cuda"
    assert resolve(RuntimeConfig(model="m"), PLAIN).device == "cpu"
    assert resolve(RuntimeConfig(model="m", device="cpu"), GPU).device == "cpu"


def test_a_cpu_beside_a_gpu_decides_the_dtype_by_its_own_flags() -> None:
    assert resolve(RuntimeConfig(model="m", device="cpu"), GPU).dtype == "float32"


def test_cuda_without_a_gpu_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no CUDA device"):
        resolve(RuntimeConfig(model="m", device="cuda"), PLAIN)


def test_zero_threads_leave_torchs_default() -> None:
    assert resolve(RuntimeConfig(model="m"), PLAIN).num_threads is None
    assert resolve(RuntimeConfig(model="m", num_threads=3), PLAIN).num_threads == 3


def test_settling_is_a_function_of_its_arguments() -> None:
    config = RuntimeConfig(model="m")
    settled = ResolvedConfig(device="cpu", dtype="float32", torch_dtype="float32", num_threads=None)
    assert resolve(config, PLAIN) == resolve(config, PLAIN) == settled


def test_this_machines_hardware_can_be_read() -> None:
    hardware = detect_hardware()
    assert isinstance(hardware.has_fast_cpu_bfloat16, bool)
