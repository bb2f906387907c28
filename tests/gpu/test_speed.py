"""How far steps are from what the device must at least take. Nothing fails on a time."""

import gc

import pytest
import torch

from runtime.batch import ScheduledRow
from runtime.cuda_executor import build_compiled_executor
from runtime.pool_limits import PoolLimits
from runtime.torch_executor import TorchExecutor
from tests.gpu.measure import (
    PAGE_SIZE,
    Device,
    decode_floor_bytes,
    decode_rows,
    prefill_floor_flops,
    prompt_row,
    seconds,
    step,
)
from tests.gpu.models import GpuModel

pytestmark = pytest.mark.gpu

CONTEXT_LEN = 512
DECODE_ROWS = (1, 16, 64)
PROMPT_LENS = (512, 4096)
LIMITS = PoolLimits(
    num_pages=max(DECODE_ROWS) * (CONTEXT_LEN // PAGE_SIZE + 1),
    page_size=PAGE_SIZE,
    max_model_len=max(PROMPT_LENS),
)


@pytest.fixture(scope="module")
def executors(model: GpuModel, device: Device) -> tuple[TorchExecutor, TorchExecutor]:
    """With and without graphs, on the same weights."""
    gc.collect()
    torch.cuda.empty_cache()
    weights = model.load(torch.bfloat16, device.device)
    recorded, plain = (
        build_compiled_executor(
            model.spec,
            weights,
            LIMITS,
            dtype=torch.bfloat16,
            device=device.device,
            record=record,
        )
        for record in (True, False)
    )
    return recorded, plain


def milliseconds(executor: TorchExecutor, rows: list[ScheduledRow]) -> float:
    return 1000 * seconds(lambda: step(executor, rows))


@pytest.mark.parametrize("num_rows", DECODE_ROWS)
def test_decode_over_bytes_by_bandwidth(
    model: GpuModel,
    executors: tuple[TorchExecutor, TorchExecutor],
    device: Device,
    table: list[str],
    num_rows: int,
) -> None:
    rows = decode_rows(num_rows, CONTEXT_LEN)
    recorded_ms, plain_ms = (milliseconds(executor, rows) for executor in executors)
    floor_bytes = decode_floor_bytes(model.spec, num_rows, CONTEXT_LEN)
    floor_ms = 1000 * floor_bytes / device.bytes_per_s
    table.append(
        f"| {model.name} | decode, {num_rows} rows of {CONTEXT_LEN} tokens | {recorded_ms:.2f} |"
        f" {plain_ms:.2f} | {plain_ms / recorded_ms:.1f} | {floor_ms:.3f} |"
        f" {recorded_ms / floor_ms:.1f} |"
    )


@pytest.mark.parametrize("num_tokens", PROMPT_LENS)
def test_prefill_over_flops_by_matmul_peak(
    model: GpuModel,
    executors: tuple[TorchExecutor, TorchExecutor],
    device: Device,
    table: list[str],
    num_tokens: int,
) -> None:
    _, plain = executors
    prefill_ms = milliseconds(plain, [prompt_row(num_tokens)])
    floor_ms = 1000 * prefill_floor_flops(model.spec, num_tokens) / device.flops_per_s
    table.append(
        f"| {model.name} | prefill, {num_tokens} tokens | | {prefill_ms:.2f} | |"
        f" {floor_ms:.3f} | {prefill_ms / floor_ms:.1f} |"
    )
