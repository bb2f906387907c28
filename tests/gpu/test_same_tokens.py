"""On a GPU the same comes out as on the CPU, and nothing waits where it should not."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from runtime.attention import PagedAttention
from runtime.batch import Executor, SampledToken, SamplePlan, SampleRow, ScheduledBatch
from runtime.cuda_executor import build_compiled_executor
from runtime.decoder import Decoder
from runtime.device_sampler import sample_on_device
from runtime.messages import Sampling
from runtime.pool_limits import PoolLimits
from runtime.sampler import sample
from runtime.torch_executor import TorchExecutor
from tests.gpu.measure import Device, decode_rows, prompt_row
from tests.gpu.models import GpuModel
from tests.greedy_driver import drive_greedily

pytestmark = pytest.mark.gpu

LIMITS = PoolLimits(num_pages=256, page_size=16, max_model_len=512)
CPU = torch.device("cpu")
PROMPTS = [[1 + (37 * i + i * i // 3) % 1000 for i in range(length)] for length in (75, 200, 7)]
NUM_TOKENS = 24
MAX_ERROR = 1e-3


def on_cpu(model: GpuModel) -> TorchExecutor:
    decoder = Decoder(model.spec, model.load(torch.float32, CPU), max_position=LIMITS.max_model_len)
    attention = PagedAttention(
        model.spec,
        num_pages=LIMITS.num_pages,
        page_size=LIMITS.page_size,
        dtype=torch.float32,
        device=CPU,
    )
    return TorchExecutor(decoder, attention, device=CPU)


def on_gpu(model: GpuModel, device: Device, *, record: bool = True) -> TorchExecutor:
    weights = model.load(torch.float32, device.device)
    return build_compiled_executor(
        model.spec, weights, LIMITS, dtype=torch.float32, device=device.device, record=record
    )


def drive(executor: Executor) -> list[list[SampledToken]]:
    return drive_greedily(executor, PROMPTS, num_tokens=NUM_TOKENS, chunk_len=100)


@pytest.fixture(scope="module")
def expected(default: GpuModel) -> list[list[SampledToken]]:
    return drive(on_cpu(default))


def assert_same(found: Sequence[SampledToken], expected: Sequence[SampledToken]) -> None:
    """Up to a place where the two best tokens are as good as tied, after which texts part."""
    for token, other in zip(found, expected, strict=True):
        assert token.logprob is not None
        assert other.logprob is not None
        (_, best), (_, second), *_ = other.logprob.top
        if token.token_id != other.token_id:
            assert best - second < MAX_ERROR
            return
        assert abs(token.logprob.logprob - other.logprob.logprob) < MAX_ERROR


@pytest.mark.parametrize("record", [True, False], ids=["graphs", "no graphs"])
def test_greedy_tokens_in_float32_are_those_of_the_cpu(
    default: GpuModel, device: Device, expected: list[list[SampledToken]], *, record: bool
) -> None:
    found = drive(on_gpu(default, device, record=record))
    for row, other in zip(found, expected, strict=True):
        assert_same(row, other)


@contextmanager
def waits(mode: str) -> Iterator[list[warnings.WarningMessage]]:
    """With `error` a wait for the device fails; with `warn` it is in the list."""
    torch.cuda.synchronize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode(mode)
        try:
            yield caught
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_a_step_waits_for_the_device_once(default: GpuModel, device: Device) -> None:
    executor = on_gpu(default, device)
    batches = [
        ScheduledBatch(0, tuple(decode_rows(3, 20))),
        ScheduledBatch(1, (prompt_row(90), *decode_rows(2, 40)[1:])),
    ]
    sampling = Sampling(1, top_p=0.8, top_k=9, min_p=0.01, frequency_penalty=0.5, num_logprobs=2)
    for is_warm in (False, True):
        for batch in batches:
            rows = tuple(SampleRow(sampling, 0, 0, output_ids=(3, 3)) for _ in batch.rows)
            if not is_warm:  # compiles, records
                executor.forward(batch)
                executor.sample(SamplePlan(rows))
                continue
            with waits("error"):
                executor.forward(batch)
            with waits("warn") as caught:
                executor.sample(SamplePlan(rows))
            found = [str(one.message) for one in caught if "synchroniz" in str(one.message)]
            assert len(found) == 1, found


def test_the_sampler_gives_the_tokens_of_the_cpu(device: Device) -> None:
    samplings = [
        Sampling(1, temperature=0.0, num_logprobs=5),
        Sampling(1, seed=1),
        Sampling(1, seed=2, top_p=0.9, temperature=0.7),
        Sampling(1, seed=3, top_k=40, min_p=0.02),
        Sampling(1, temperature=0.0, repetition_penalty=1.3, logit_bias={5: 3.0}),
    ]
    rows = tuple(
        SampleRow(
            samplings[i % len(samplings)],
            choice=0,
            position=i,
            prompt_ids=(1, 2, 3),
            output_ids=(4, 4, 7),
            forbid_ids=(9,),
            mask=i % 2 if i % 3 == 0 else None,
        )
        for i in range(50)
    )
    vocab_size = 49152
    masks = np.random.default_rng(0).integers(-(2**31), 2**31, (2, vocab_size // 32), np.int32)
    logits = 4 * torch.randn(len(rows), vocab_size, generator=torch.Generator().manual_seed(0))
    plan = SamplePlan(rows, masks)
    found, expected = sample_on_device(logits.to(device.device), plan), sample(logits, plan)
    assert [token.token_id for token in found] == [token.token_id for token in expected]
