"""From torch to the native step between two steps: sequences and cached pages go on."""

import gc
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from runtime.batch import (
    Executor,
    PageCopy,
    PageId,
    RowKey,
    SamplePlan,
    SampleRow,
    ScheduledBatch,
    ScheduledRow,
)
from runtime.messages import Sampling
from runtime.model_facts import ModelSource
from runtime.model_source import open_model
from runtime.native.build import library_path
from runtime.native.library import LibraryError
from runtime.native.loading import build_native_executor, load_native_executor
from runtime.native.native_executor import NativeExecutor
from runtime.native.preparation import Preparation
from runtime.native.upgrade import UpgradingExecutor
from runtime.pool_limits import PoolLimits
from runtime.torch_executor import TorchExecutor, build_torch_executor
from tests.native_library import (
    HAS_COMPILER,
    NO_COMPILER,
    built_library,
    make_cache,
    runnable_sets,
)
from tests.tiny_gguf import VOCAB, write_tiny_gguf

pytestmark = [
    pytest.mark.skipif(not HAS_COMPILER, reason=NO_COMPILER),
    pytest.mark.timeout(300),  # building the library takes 17 s of a free core
]
LIMITS = PoolLimits(num_pages=12, page_size=16, max_model_len=128)
PROMPT = [(7 * i + i * i) % 61 for i in range(60)]
PAGES = (7, 2, 9, 4)
ALL = SampleRow(Sampling(max_tokens=1, temperature=0.0, num_logprobs=VOCAB), 0, 0)


class FakePreparation:
    """Done when a test says so."""

    result: bool | None = None

    def outcome(self) -> bool | None:
        return self.result


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> ModelSource:
    return open_model(write_tiny_gguf(tmp_path_factory.mktemp("upgrade") / "tiny.gguf"))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built_library(runnable_sets()[0])
    monkeypatch.setenv("XDG_CACHE_HOME", str(make_cache(tmp_path / "cache")))


def torch_executor(source: ModelSource) -> TorchExecutor:
    return build_torch_executor(
        source, source.spec, LIMITS, dtype=torch.float32, device=torch.device("cpu")
    )


def native_executor(source: ModelSource) -> NativeExecutor:
    return build_native_executor(built_library(runnable_sets()[0]), source, source.spec, LIMITS)


def upgrading(
    source: ModelSource, load: Callable[[], NativeExecutor] | None = None
) -> tuple[UpgradingExecutor, FakePreparation]:
    preparation = FakePreparation()
    load = load or (lambda: native_executor(source))
    plain = torch_executor(source)
    return UpgradingExecutor(plain, preparation, load, page_size=LIMITS.page_size), preparation


def step(
    executor: Executor,
    tokens: list[int],
    start: int,
    *,
    pages: tuple[int, ...] = PAGES,
    copies: tuple[PageCopy, ...] = (),
) -> torch.Tensor:
    """One step of one sequence -> the distributions after each token, [tokens, V]."""
    page_ids = tuple(PageId(page) for page in pages)
    row = ScheduledRow(RowKey(0), tuple(tokens), start, page_ids, tuple(range(len(tokens))))
    executor.forward(ScheduledBatch(0, (row,), copies))
    sampled = executor.sample(SamplePlan((ALL,) * len(tokens)))
    tops = [one.logprob.top for one in sampled if one.logprob is not None]
    return torch.tensor([[value for _, value in sorted(top)] for top in tops])


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Of the deviations from each row's mean."""
    centred = expected - expected.mean(-1, keepdim=True)
    return float((found - found.mean(-1, keepdim=True) - centred).norm() / centred.norm())


def test_torch_serves_until_the_native_step_is_ready(source: ModelSource) -> None:
    executor, preparation = upgrading(source)
    plain = torch_executor(source)
    assert torch.equal(step(executor, PROMPT, 0), step(plain, PROMPT, 0))
    preparation.result = True
    native = native_executor(source)
    assert torch.equal(step(executor, PROMPT, 0), step(native, PROMPT, 0))


def test_a_step_ends_with_the_executor_that_began_it(source: ModelSource) -> None:
    executor, preparation = upgrading(source)
    row = ScheduledRow(RowKey(0), (5,), 0, (PageId(0),), (0,))
    executor.forward(ScheduledBatch(0, (row,)))
    preparation.result = True
    (sampled,) = executor.sample(SamplePlan((ALL,)))
    assert sampled.logprob is not None
    found = torch.tensor([[value for _, value in sorted(sampled.logprob.top)]])
    assert torch.equal(found, step(torch_executor(source), [5], 0, pages=(0,)))


def test_a_sequence_that_torch_began_goes_on(source: ModelSource) -> None:
    """Half of its keys and values are those of weights that were not rounded: as near to a run
    that was native all along as torch's own numbers are."""
    executor, preparation = upgrading(source)
    plain, native = torch_executor(source), native_executor(source)
    begun, of_torch, of_native = (step(one, PROMPT[:37], 0) for one in (executor, plain, native))
    assert torch.equal(begun, of_torch)
    preparation.result = True
    rest, of_torch, of_native = (step(one, PROMPT[37:], 37) for one in (executor, plain, native))
    cost_of_rounding = relative_error(of_torch, of_native)
    assert 0 < relative_error(rest, of_native) < 1.5 * cost_of_rounding
    forgotten = step(native_executor(source), PROMPT[37:], 37)
    assert relative_error(forgotten, of_native) > 5 * cost_of_rounding


def test_copied_pages_are_taken_over_and_copies_go_on(source: ModelSource) -> None:
    executor, preparation = upgrading(source)
    native = native_executor(source)
    for one in (executor, native):
        step(one, PROMPT[:20], 0, pages=(7, 2))
        copy = PageCopy(PageId(2), PageId(3), 4)
        one.forward(ScheduledBatch(1, (), (copy,)))
    preparation.result = True
    found, expected = (
        step(one, PROMPT[19:40], 19, pages=(7, 11, 8), copies=(PageCopy(PageId(3), PageId(11), 3),))
        for one in (executor, native)
    )
    assert relative_error(found, expected) < 0.05


def test_torchs_weights_are_freed(source: ModelSource) -> None:
    plain = torch_executor(source)
    alive = weakref.ref(plain)
    preparation = FakePreparation()
    executor = UpgradingExecutor(
        plain, preparation, lambda: native_executor(source), page_size=LIMITS.page_size
    )
    del plain
    step(executor, PROMPT[:5], 0)
    preparation.result = True
    assert alive() is not None
    step(executor, PROMPT[5:9], 5)
    gc.collect()
    assert alive() is None


def test_a_failed_preparation_leaves_torch_and_warns_once(
    source: ModelSource, caplog: pytest.LogCaptureFixture
) -> None:
    def load() -> NativeExecutor:
        raise AssertionError("nothing was prepared")

    executor, preparation = upgrading(source, load)
    preparation.result = False
    plain = torch_executor(source)
    for start in range(0, 60, 20):
        part = PROMPT[start : start + 20]
        assert torch.equal(step(executor, part, start), step(plain, part, start))
    (message,) = caplog.messages
    assert message == "serving goes on with torch alone: the native step cannot be had"


@pytest.mark.parametrize("error", [LibraryError("x.so: cannot be loaded"), MemoryError("no room")])
def test_a_failed_load_leaves_torch_and_warns_once(
    source: ModelSource, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    num_loads = 0

    def load() -> NativeExecutor:
        nonlocal num_loads
        num_loads += 1
        raise error

    executor, preparation = upgrading(source, load)
    plain = torch_executor(source)
    for start in range(0, 60, 20):
        part = PROMPT[start : start + 20]
        assert torch.equal(step(executor, part, start), step(plain, part, start))
        preparation.result = True
    assert caplog.messages == [f"serving goes on with torch alone: {error}"]
    assert num_loads == 1


class FakeStart:
    """In place of Preparation.start: nothing is started."""

    def __init__(self) -> None:
        self.models: list[str] = []
        self.preparation = FakePreparation()

    def __call__(self, model: str) -> FakePreparation:
        self.models.append(model)
        return self.preparation


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> FakeStart:
    fake = FakeStart()
    monkeypatch.setattr(Preparation, "start", fake)
    return fake


def load_for(source: ModelSource) -> Executor:
    return load_native_executor(
        source,
        source.spec,
        LIMITS,
        model="the model",
        cpu_flags=runnable_sets()[0].cpu_flags,
        torch_dtype=torch.float32,
    )


def test_a_built_library_is_used_at_once(source: ModelSource, start: FakeStart) -> None:
    assert isinstance(load_for(source), NativeExecutor)
    assert start.models == []


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    path = library_path(runnable_sets()[0])
    path.parent.mkdir(parents=True)
    return path


@pytest.mark.usefixtures("empty_cache")
def test_without_a_library_torch_serves_while_one_is_prepared(
    source: ModelSource, start: FakeStart
) -> None:
    executor = load_for(source)
    assert isinstance(executor, UpgradingExecutor)
    assert start.models == ["the model"]
    assert torch.equal(step(executor, PROMPT, 0), step(torch_executor(source), PROMPT, 0))


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_library_that_cannot_be_loaded_is_prepared_again(
    kind: str,
    source: ModelSource,
    start: FakeStart,
    empty_cache: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    empty_cache.write_bytes(b"no library") if kind == "file" else empty_cache.mkdir()
    executor = load_for(source)
    assert isinstance(executor, UpgradingExecutor)
    assert start.models == ["the model"]
    assert not empty_cache.is_file()
    (message,) = caplog.messages
    assert message.endswith("it is built again")


def test_a_library_that_was_prepared_meanwhile_is_taken(
    source: ModelSource, start: FakeStart, empty_cache: Path
) -> None:
    executor = load_for(source)
    empty_cache.symlink_to(built_library(runnable_sets()[0])._name)
    start.preparation.result = True
    native = native_executor(source)
    assert torch.equal(step(executor, PROMPT, 0), step(native, PROMPT, 0))


def test_a_child_that_cannot_be_started_leaves_torch(
    source: ModelSource,
    empty_cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(_: str) -> FakePreparation:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(Preparation, "start", fail)
    executor = load_for(source)
    assert not empty_cache.exists()
    assert torch.equal(step(executor, PROMPT, 0), step(torch_executor(source), PROMPT, 0))
    (message,) = caplog.messages
    assert message == (
        "serving goes on with torch alone: no process can be started"
        " (Resource temporarily unavailable)"
    )


def test_pages_cannot_leave_before_the_native_step_is_there(source: ModelSource) -> None:
    executor, preparation = upgrading(source)
    step(executor, PROMPT[:5], 0)
    assert executor.page_io is None
    preparation.result = True
    step(executor, PROMPT[5:9], 5)
    assert executor.page_io is not None


def test_what_torch_had_a_part_in_must_not_leave(source: ModelSource) -> None:
    """Pages that it wrote, those copied from them, and those computed behind them; a page that is
    written anew behind none of them may."""
    executor, preparation = upgrading(source)
    step(executor, PROMPT[:20], 0, pages=(7, 2))
    preparation.result = True
    step(executor, PROMPT[20:40], 20, pages=(7, 2, 9))
    io = executor.page_io
    assert io is not None
    assert io.foreign_pages == {7, 2, 9}
    executor.forward(ScheduledBatch(1, (), (PageCopy(PageId(9), PageId(3), 4),)))
    assert io.foreign_pages == {7, 2, 9, 3}
    step(executor, PROMPT[:32], 0, pages=(2, 5))
    assert io.foreign_pages == {7, 9, 3}
    native = native_executor(source)
    step(native, PROMPT[:32], 0, pages=(2, 5))
    assert native.page_io is not None
    assert np.array_equal(io.read([2, 5]), native.page_io.read([2, 5]))


def test_native_pages_come_back_to_other_places(source: ModelSource) -> None:
    first, second = native_executor(source), native_executor(source)
    expected = step(first, PROMPT, 0)[33:]
    assert first.page_io is not None
    assert second.page_io is not None
    second.page_io.write([0, 11], first.page_io.read(PAGES[:2]))
    found = step(second, PROMPT[32:], 32, pages=(0, 11, 3, 4))[1:]
    assert torch.equal(found, expected)
