"""Restarts of real executors over a folder: what comes back is what was computed, to the last bit
in raw, nearly in 8 bits."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import pytest

from prefix_cache.identity import stored_root
from prefix_cache.tiers.disk_tier import DiskTier
from runtime.batch import Executor
from runtime.config import CacheFormat, RuntimeConfig
from runtime.kv_codec import CODEC_VERSION
from runtime.messages import EngineInfo, Sampling, Submit
from runtime.model_runner import load_executor
from runtime.model_source import open_model
from runtime.native.loading import build_native_executor
from runtime.pool_limits import PoolLimits
from runtime.worker import engine_info
from tests.engine_harness import Answer, make_info, make_submit
from tests.native_library import HAS_COMPILER, NO_COMPILER, built_library, make_cache, runnable_sets
from tests.tiered_engine import TierDriver
from tests.tiny_gguf import VOCAB, write_tiny_gguf
from tests.tiny_model import write_tiny_model

PAGE_SIZE, NUM_PAGES = 16, 24
PROMPT = [(7 * i + i * i) % 57 + 3 for i in range(6 * PAGE_SIZE + 5)]
GREEDY = Sampling(max_tokens=8, temperature=0.0, ignore_eos=True, num_logprobs=1)


@dataclass(eq=False)
class Restarts:
    """Engines one after the other over one folder; nothing but the folder outlives any of them."""

    executor: Executor
    info: EngineInfo
    folder: Path
    opened: list[TierDriver] = field(default_factory=list)

    def start(self, payload_format: CacheFormat = "raw") -> TierDriver:
        page_io = self.executor.page_io
        assert page_io is not None
        page_io.write(range(NUM_PAGES), np.zeros((NUM_PAGES, page_io.page_bytes), np.uint8))
        root = stored_root(self.info.kv_root, payload_format, CODEC_VERSION)
        tier = DiskTier(self.folder, root=root, max_bytes=1 << 30)
        driver = TierDriver(
            self.executor,
            self.info,
            [tier],
            payload_format=payload_format,
            config=RuntimeConfig(model="tiny"),
        )
        self.opened.append(driver)
        return driver

    def ask(self, request: Submit, payload_format: CacheFormat = "raw") -> Answer:
        """By an engine of its own, which then ends."""
        driver = self.start(payload_format)
        answer = driver.ask(request)
        driver.close()
        return answer


def torch_model(folder: Path) -> tuple[Executor, EngineInfo]:
    """Float32, where nothing may differ."""
    config = RuntimeConfig(
        model=str(write_tiny_model(folder)), dtype="float32", device="cpu", kv_memory_bytes=1 << 20
    )
    source = open_model(config.model)
    loaded = load_executor(source, config)
    return loaded.executor, engine_info("tiny", source, loaded, config)


def native_model(folder: Path) -> tuple[Executor, EngineInfo]:
    if not HAS_COMPILER:
        pytest.skip(NO_COMPILER)
    source = open_model(write_tiny_gguf(folder / "tiny.gguf"))
    limits = PoolLimits(num_pages=NUM_PAGES, page_size=PAGE_SIZE, max_model_len=256)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(make_cache(folder / "cache")))
        executor = build_native_executor(
            built_library(runnable_sets()[0]), source, source.spec, limits
        )
    info = make_info(num_pages=NUM_PAGES, max_model_len=256)
    return executor, msgspec.structs.replace(info, vocab_size=VOCAB, eos_token_ids=(2,))


Make = Callable[[Path], tuple[Executor, EngineInfo]]


@pytest.fixture(scope="module", params=[torch_model, native_model])
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Executor, EngineInfo]:
    make: Make = request.param
    folder = tmp_path_factory.mktemp("model")
    return make(folder)


@pytest.fixture
def restarts(model: tuple[Executor, EngineInfo], tmp_path: Path) -> Iterator[Restarts]:
    made = Restarts(*model, tmp_path / "cache")
    yield made
    for driver in made.opened:
        driver.close()


def logprobs(answer: Answer) -> list[float]:
    return [one.logprob for event in answer.events for one in event.logprobs]


def tier_tokens(answer: Answer) -> int:
    assert answer.last.usage is not None
    return sum(answer.last.usage.tier_tokens.values())


@pytest.mark.timeout(300)  # the library of the native step may have to be built
def test_after_a_restart_the_answer_is_the_same(restarts: Restarts) -> None:
    first = restarts.ask(make_submit("first", PROMPT, sampling=GREEDY))
    again = restarts.ask(make_submit("again", PROMPT, sampling=GREEDY))
    assert (tier_tokens(first), tier_tokens(again)) == (0, 6 * PAGE_SIZE)
    assert again.token_ids == first.token_ids
    assert logprobs(again) == pytest.approx(logprobs(first), abs=0.02)


@pytest.mark.timeout(300)
def test_pages_that_come_back_are_those_that_left(restarts: Restarts) -> None:
    """Bit for bit, at other places of the pool."""
    driver = restarts.start()
    driver.ask(make_submit("first", PROMPT, sampling=GREEDY))
    before = _cached_pages(driver)
    driver.close()
    driver = restarts.start()
    driver.ask(make_submit("other", PROMPT[50:80], sampling=GREEDY, use_cache=False))
    driver.submit(make_submit("long", range(3, 40), sampling=GREEDY, use_cache=False))
    driver.step()  # which takes the first pages of the pool
    driver.submit(make_submit("again", PROMPT, sampling=GREEDY))
    driver.finish("long", "again")
    after = _cached_pages(driver)
    assert before.shape == after.shape
    assert before.any()
    assert np.array_equal(before, after)


def _cached_pages(driver: TierDriver) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """The content of the prompt's pages."""
    lease = driver.cache.acquire(b"", PROMPT, max_tokens=6 * PAGE_SIZE)
    assert driver.engine._executor.page_io is not None
    pages = driver.engine._executor.page_io.read(lease.page_ids)
    driver.cache.release(lease, None)
    return pages


@pytest.mark.timeout(300)
def test_in_8_bits_the_answer_is_nearly_the_same_and_formats_do_not_meet(
    restarts: Restarts,
) -> None:
    page_io = restarts.executor.page_io
    assert page_io is not None
    if page_io.dtype == "float32":
        pytest.skip("refused where computing is exact")
    first = restarts.ask(make_submit("first", PROMPT, sampling=GREEDY), "int8")
    again = restarts.ask(make_submit("again", PROMPT, sampling=GREEDY), "int8")
    assert tier_tokens(again) == 6 * PAGE_SIZE
    assert logprobs(again)[0] == pytest.approx(logprobs(first)[0], abs=0.2)
    raw = restarts.ask(make_submit("raw", PROMPT, sampling=GREEDY), "raw")
    assert tier_tokens(raw) == 0
