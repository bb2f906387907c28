"""An engine over the fake executor with lower tiers: restarted at will, what tiers hold stays."""

import threading
from collections.abc import Sequence

import msgspec

from prefix_cache.identity import stored_root
from prefix_cache.tiers.tier import PageTier
from runtime.batch import Executor, ScheduledBatch
from runtime.config import CacheFormat, RuntimeConfig
from runtime.kv_codec import CODEC_VERSION, make_codec
from runtime.messages import EngineInfo, Submit
from runtime.tier_threads import TierSet
from tests.engine_harness import (
    MAX_STEPS,
    PAGE_SIZE,
    VOCAB_SIZE,
    Answer,
    EngineDriver,
    StepClock,
    make_info,
)
from tests.fake_executor import FakeExecutor

WAIT_S = 10.0
# What a token takes by the engine's clock: a page is worth a transfer of 16 ms.
TOKEN_NS = 1_000_000


class SlowExecutor(FakeExecutor):
    """Puts the engine's clock forward for each token."""

    clock: StepClock | None = None

    def forward(self, batch: ScheduledBatch) -> None:
        super().forward(batch)
        if self.clock is not None:
            self.clock.now_ns += TOKEN_NS * batch.num_tokens


class TierDriver(EngineDriver):
    """Any executor behind an engine with lower tiers. `ask` and `finish` wait for these, `settle`
    uses idle time, `close` ends the threads."""

    def __init__(
        self,
        executor: Executor,
        info: EngineInfo,
        tiers: Sequence[PageTier],
        *,
        payload_format: CacheFormat = "raw",
        config: RuntimeConfig,
    ) -> None:
        self.rung = threading.Event()
        assert executor.page_io is not None
        page_bytes, dtype = executor.page_io.page_bytes, executor.page_io.dtype
        self.tier_set = TierSet(
            tiers,
            codec=make_codec(payload_format, page_bytes=page_bytes, dtype=dtype),
            root=stored_root(info.kv_root, payload_format, CODEC_VERSION),
            ring=self.rung.set,
        )
        super().__init__(executor, info, config=config, tiers=self.tier_set)

    def ask(self, request: Submit) -> Answer:
        self.submit(request)
        self.finish(request.request_id)
        return self.answer(request.request_id)

    def finish(self, *request_ids: str) -> None:
        """Steps until these are answered, waiting for tiers where need be."""
        for _ in range(MAX_STEPS):
            if all(map(self.is_done, request_ids)):
                return
            self.rung.clear()
            if self.engine.has_work():
                self.step()
            else:
                assert self.rung.wait(WAIT_S), f"nobody rang: {self.stats}"
        raise AssertionError(f"still busy after {MAX_STEPS} steps: {self.stats}")

    def settle(self) -> None:
        """Uses idle time until all that is cached is stored."""
        while self.engine.idle():
            self.check_pages()
        stored = threading.Event()
        self.tier_set.prepare(stored.set)
        assert stored.wait(WAIT_S)

    def close(self) -> None:
        self.engine.close()


class TieredEngine(TierDriver):
    """Over the fake executor, whose pages hold what they say they do."""

    executor: SlowExecutor

    def __init__(
        self,
        tiers: Sequence[PageTier],
        *,
        num_pages: int = 256,
        kv_root: bytes = b"root",
        max_running: int = 16,
    ) -> None:
        self.executor = SlowExecutor(PAGE_SIZE, VOCAB_SIZE)
        info = make_info(num_pages=num_pages, max_model_len=4096)
        super().__init__(
            self.executor,
            msgspec.structs.replace(info, kv_root=kv_root),
            tiers,
            config=RuntimeConfig(model="fake", max_running=max_running),
        )
        self.executor.clock = self.clock
