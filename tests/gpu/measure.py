"""What a GPU can do, what a step must at least move or compute, and how long it takes."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from runtime.batch import (
    Executor,
    PageId,
    RowKey,
    SamplePlan,
    SampleRow,
    ScheduledBatch,
    ScheduledRow,
)
from runtime.decoder_spec import DecoderSpec
from runtime.messages import Sampling

PAGE_SIZE = 16
_COPY_BYTES = 2**30
_MATMUL_SIZE = 8192
_ROUNDS, _REPEATS = 5, 10
_GREEDY = Sampling(max_tokens=1, temperature=0.0)


@dataclass(frozen=True, slots=True)
class Device:
    """Rates that were measured: of a copy (bytes read plus bytes written), of a matmul."""

    name: str
    device: torch.device
    bytes_per_s: float
    flops_per_s: float


def measure_device(device: torch.device) -> Device:
    source = torch.ones(_COPY_BYTES, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copy_s = seconds(lambda: target.copy_(source))
    left, right = (
        torch.randn(_MATMUL_SIZE, _MATMUL_SIZE, dtype=torch.bfloat16, device=device)
        for _ in range(2)
    )
    matmul_s = seconds(lambda: torch.matmul(left, right))
    return Device(
        name=torch.cuda.get_device_name(device),
        device=device,
        bytes_per_s=2 * _COPY_BYTES / copy_s,
        flops_per_s=2 * _MATMUL_SIZE**3 / matmul_s,
    )


def seconds(function: Callable[[], object]) -> float:
    """The median over rounds of one call's mean, after three calls that do not count."""
    for _ in range(3):
        function()
    return statistics.median(_round(function) for _ in range(_ROUNDS))


def _round(function: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(_REPEATS):
        function()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / _REPEATS


def step(executor: Executor, rows: list[ScheduledRow]) -> None:
    """A step as the engine makes it, without the engine: forward, one greedy token a row."""
    executor.forward(ScheduledBatch(step=0, rows=tuple(rows)))
    executor.sample(SamplePlan(tuple(SampleRow(_GREEDY, 0, 0) for _ in rows)))


def decode_rows(num_rows: int, context_len: int) -> list[ScheduledRow]:
    """One new token a row, each with pages of its own."""
    pages_a_row = context_len // PAGE_SIZE + 1
    return [
        ScheduledRow(
            RowKey(number),
            (number + 1,),
            context_len,
            tuple(PageId(number * pages_a_row + page) for page in range(pages_a_row)),
            (0,),
        )
        for number in range(num_rows)
    ]


def prompt_row(num_tokens: int) -> ScheduledRow:
    pages = tuple(PageId(page) for page in range(-(-num_tokens // PAGE_SIZE)))
    token_ids = tuple(1 + i % 1000 for i in range(num_tokens))
    return ScheduledRow(RowKey(0), token_ids, 0, pages, (num_tokens - 1,))


def num_layer_weights(spec: DecoderSpec) -> int:
    """Weights of all layers' matrices."""
    attention = (2 * spec.num_heads + 2 * spec.num_kv_heads) * spec.head_dim
    return spec.num_layers * spec.hidden_size * (attention + 3 * spec.ffn_size)


def decode_floor_bytes(spec: DecoderSpec, num_rows: int, context_len: int) -> int:
    """Read at least, in bfloat16: every matrix once, the keys and values of every row."""
    weights = num_layer_weights(spec) + spec.vocab_size * spec.hidden_size
    per_token = 2 * spec.num_layers * spec.num_kv_heads * spec.head_dim
    return 2 * (weights + num_rows * context_len * per_token)


def prefill_floor_flops(spec: DecoderSpec, num_tokens: int) -> int:
    """Matrices for every token, attention to all before it, the logits of the last."""
    attention = 2 * spec.num_layers * spec.num_heads * spec.head_dim * num_tokens**2
    logits = 2 * spec.vocab_size * spec.hidden_size
    return 2 * num_layer_weights(spec) * num_tokens + attention + logits
