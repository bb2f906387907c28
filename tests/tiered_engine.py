"""An engine over the fake executor with lower tiers: restarted at will, what tiers hold stays."""

import threading
from collections.abc import Sequence

from prefix_cache.identity import stored_root
from prefix_cache.tiers.tier import PageTier
from runtime.batch import ScheduledBatch
from runtime.config import CacheFormat, RuntimeConfig
from runtime.kv_codec import CODEC_VERSION, make_codec
from runtime.messages import Submit
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


class TieredEngine(EngineDriver):
    """`run` also uses idle time and waits for the tiers; `close` ends the threads."""

    def __init__(
        self,
        tiers: Sequence[PageTier],
        *,
        num_pages: int = 256,
        kv_root: bytes = b"root",
        payload_format: CacheFormat = "raw",
        max_running: int = 16,
    ) -> None:
        self.executor = SlowExecutor(PAGE_SIZE, VOCAB_SIZE)
        self.rung = threading.Event()
        self.tier_set = TierSet(
            tiers,
            codec=make_codec(
                payload_format, page_bytes=self.executor.page_io.page_bytes, dtype="bfloat16"
            ),
            root=stored_root(kv_root, payload_format, CODEC_VERSION),
            ring=self.rung.set,
        )
        config = RuntimeConfig(model="fake", max_running=max_running)
        info = make_info(num_pages=num_pages, max_model_len=4096)
        super().__init__(self.executor, info, config=config, tiers=self.tier_set)
        self.executor.clock = self.clock

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
            elif not self.engine.has_work():
                assert self.rung.wait(WAIT_S), f"nobody rang: {self.stats}"
        raise AssertionError(f"still busy after {MAX_STEPS} steps: {self.stats}")

    def settle(self) -> None:
        """Uses idle time until all that is cached is stored."""
        while self.engine.idle():
            self.check_pages()
        stored = threading.Event()
        assert self.tier_set._storing.add(stored.set)
        assert stored.wait(WAIT_S)

    def close(self) -> None:
        self.engine.close()
