"""What an engine with lower tiers answers about its cache is what a request then gets of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from prefix_cache.identity import stored_root
from prefix_cache.tiers.disk_tier import DiskTier
from runtime.cache_messages import CacheAnswer, CacheExplanation, ExplainCache, FlushCache
from runtime.kv_codec import CODEC_VERSION
from tests.engine_harness import PAGE_SIZE, make_submit
from tests.memory_tier import MemoryTier
from tests.tiered_engine import WAIT_S, TieredEngine

PROMPT = [(7 * i + i * i) % 90 for i in range(10 * PAGE_SIZE + 3)]


@pytest.fixture
def tier() -> MemoryTier:
    """What an engine before left there."""
    tier = MemoryTier()
    engine = TieredEngine([tier])
    engine.ask(make_submit("first", PROMPT))
    engine.settle()
    engine.close()
    return tier


@pytest.fixture
def engine(tier: MemoryTier) -> Iterator[TieredEngine]:
    engine = TieredEngine([tier])
    yield engine
    engine.close()


def explain(engine: TieredEngine, token_ids: list[int]) -> CacheExplanation:
    answer = engine.engine.answer(ExplainCache("q", token_ids, b"", owner=""))
    told = answer if isinstance(answer, CacheAnswer) else answer.result(timeout=WAIT_S)
    assert isinstance(told, CacheExplanation)
    return told


@pytest.mark.parametrize(
    ("prompt", "reason"),
    [(PROMPT, None), ([*PROMPT[:100], *PROMPT[:60]], "grows"), ([5, *PROMPT], "never_seen")],
)
def test_tokens_that_a_tier_is_said_to_have_come_from_it(
    engine: TieredEngine, prompt: list[int], reason: str | None
) -> None:
    told = explain(engine, prompt)
    assert (told.matched_tokens, told.reason) == (0, reason)
    usage = engine.ask(make_submit("r", prompt)).last.usage
    assert usage is not None
    assert usage.tier_tokens == told.tier_tokens
    assert usage.cached_tokens == told.matched_tokens + sum(told.tier_tokens.values())
    expected = {None: 10 * PAGE_SIZE, "grows": 6 * PAGE_SIZE, "never_seen": 0}[reason]
    assert usage.cached_tokens == expected


def test_what_the_device_has_by_then_is_not_counted_for_a_tier(engine: TieredEngine) -> None:
    engine.ask(make_submit("short", [*PROMPT[:40], 1, 2]))
    told = explain(engine, PROMPT)
    assert (told.matched_tokens, told.tier_tokens) == (40, {"disk": 10 * PAGE_SIZE - 40})
    assert told.reason is None


@pytest.mark.parametrize("owner", [None, ""])
def test_after_a_flush_no_tier_has_what_was_flushed(
    engine: TieredEngine, tier: MemoryTier, owner: str | None
) -> None:
    engine.ask(make_submit("again", PROMPT))
    engine.settle()
    assert tier.num_pages >= 10
    engine.engine.answer(FlushCache("q", owner=owner))
    engine.settle()
    told = explain(engine, PROMPT)
    assert (told.matched_tokens, told.tier_tokens, told.reason) == (0, {}, "evicted")
    assert told.evicted_for == "flush"


def test_what_another_model_left_on_the_disk_is_told_and_not_used(tmp_path: Path) -> None:
    def started(model: bytes) -> TieredEngine:
        root = stored_root(model, "raw", CODEC_VERSION)
        return TieredEngine([DiskTier(tmp_path, root=root, max_bytes=2**24)], kv_root=model)

    first, second = started(b"first"), started(b"second")
    try:
        first.ask(make_submit("r", PROMPT))
        first.settle()
        told = explain(second, PROMPT)
        assert (told.reason, told.matched_tokens, told.tier_tokens) == ("model_changed", 0, {})
        assert explain(second, [5, *PROMPT]).reason == "never_seen"
        assert explain(second, PROMPT[:9]).reason == "never_seen"
        usage = second.ask(make_submit("r", PROMPT)).last.usage
        assert usage is not None
        assert usage.cached_tokens == 0
        assert explain(first, PROMPT).reason is None
    finally:
        first.close()
        second.close()


def test_a_flush_may_leave_the_tiers_as_they_are(engine: TieredEngine) -> None:
    engine.ask(make_submit("again", PROMPT))
    engine.engine.answer(FlushCache("q", tiers=False))
    engine.settle()
    assert explain(engine, PROMPT).tier_tokens == {"disk": 10 * PAGE_SIZE}
