"""What can be said of the executor for CUDA without a GPU: when it is built, and of what."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from runtime import cuda_executor, model_runner
from runtime.batch import ScheduledBatch
from runtime.config import RuntimeConfig
from runtime.cuda_executor import build_cuda_executor
from runtime.hardware import Hardware
from runtime.model_facts import ModelSource
from runtime.model_source import open_model
from runtime.pool_limits import PoolLimits
from tests.tiny_gguf import write_tiny_gguf

LIMITS = PoolLimits(num_pages=8, page_size=16, max_model_len=64)
CPU = torch.device("cpu")


@pytest.fixture
def source(tmp_path: Path) -> ModelSource:
    return open_model(write_tiny_gguf(tmp_path / "tiny.gguf"))


class FakeExecutor:
    """Keeps what it was given."""

    def __init__(self) -> None:
        self.batches: list[ScheduledBatch] = []
        self.error: RuntimeError | None = None

    def forward(self, batch: ScheduledBatch) -> None:
        if self.error is not None:
            raise self.error
        self.batches.append(batch)


@pytest.fixture
def executor() -> FakeExecutor:
    return FakeExecutor()


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch, executor: FakeExecutor) -> Iterator[list[str]]:
    """Which builder was asked; each gives the fake."""
    asked: list[str] = []
    for name in ("build_flex_executor", "build_torch_executor"):

        def build(*_args: Any, name: str = name, **_options: Any) -> FakeExecutor:
            asked.append(name)
            return executor

        monkeypatch.setattr(cuda_executor, name, build)
    monkeypatch.setattr(cuda_executor, "GraphCapture", lambda: None)
    with torch._dynamo.config.patch(recompile_limit=8):  # sets it back after the test
        yield asked


def pretend(monkeypatch: pytest.MonkeyPatch, *, triton: bool, compiler: bool) -> None:
    monkeypatch.setattr(
        "runtime.cuda_executor.find_spec", lambda _name: object() if triton else None
    )
    monkeypatch.setattr(
        "runtime.cuda_executor.which", lambda name: f"/bin/{name}" if compiler else None
    )


def build(source: ModelSource, limits: PoolLimits = LIMITS, head_dim: int = 16) -> None:
    spec = replace(source.spec, head_dim=head_dim)
    build_cuda_executor(source, spec, limits, dtype=torch.float32, device=CPU)


def test_with_triton_and_a_compiler_attention_is_compiled(
    source: ModelSource, built: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, triton=True, compiler=True)
    build(source)
    assert built == ["build_flex_executor"]


@pytest.mark.usefixtures("built")
def test_a_prompt_and_a_decode_step_are_compiled_before_the_server_is_ready(
    source: ModelSource, executor: FakeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, triton=True, compiler=True)
    build(source)
    rows = [row for batch in executor.batches for row in batch.rows]
    assert [len(row.token_ids) for row in rows] == [2, 1]
    assert rows[1].start == len(rows[0].token_ids)


def test_where_compiling_fails_one_line_says_why_and_the_plain_executor_runs(
    source: ModelSource,
    built: list[str],
    executor: FakeExecutor,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    pretend(monkeypatch, triton=True, compiler=True)
    executor.error = RuntimeError("out of resources: shared memory\nlong\nstory")
    with caplog.at_level(logging.WARNING, logger="runtime.cuda_executor"):
        build(source)
    assert built == ["build_flex_executor", "build_torch_executor"]
    (line,) = caplog.messages
    assert line == ("attention is not compiled, which is slower: out of resources: shared memory")


@pytest.mark.parametrize(
    ("triton", "compiler", "head_dim", "page_size", "reason"),
    [
        (False, True, 16, 16, "triton is not installed"),
        (True, False, 16, 16, "needs a C compiler"),
        (True, True, 8, 16, "heads of 8"),
        (True, True, 16, 8, "pages of 8 tokens"),
    ],
)
def test_without_what_compiling_needs_one_line_says_so_and_the_plain_executor_runs(
    source: ModelSource,
    built: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    triton: bool,
    compiler: bool,
    head_dim: int,
    page_size: int,
    reason: str,
) -> None:
    pretend(monkeypatch, triton=triton, compiler=compiler)
    with caplog.at_level(logging.WARNING, logger="runtime.cuda_executor"):
        build(source, replace(LIMITS, page_size=page_size), head_dim)
    assert built == ["build_torch_executor"]
    (line,) = caplog.messages
    assert reason in line


def test_the_device_cuda_gets_this_executor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf")
    seen: list[tuple[torch.dtype, torch.device]] = []

    def build(*_args: Any, dtype: torch.dtype, device: torch.device) -> None:
        seen.append((dtype, device))

    monkeypatch.setattr(model_runner, "detect_hardware", lambda: Hardware(frozenset(), True))
    monkeypatch.setattr(model_runner, "build_cuda_executor", build)
    config = RuntimeConfig(model=str(path), kv_memory_bytes=2**20)
    loaded = model_runner.load_executor(open_model(path), config)
    assert seen == [(torch.bfloat16, torch.device("cuda"))]
    assert (loaded.device, loaded.dtype) == ("cuda", "bfloat16")
