"""Lower tiers hear of prefixes that the device itself serves, so that they keep their copies."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from prefix_cache.identity import page_identities, stored_root, tenant_root
from prefix_cache.tiers.disk_tier import DiskTier
from prefix_cache.tiers.page_file import encoded_len
from prefix_cache.tiers.tier import PageKey
from runtime import lower_tiers, prefix_uses
from runtime.kv_codec import CODEC_VERSION
from tests.engine_harness import PAGE_SIZE, VOCAB_SIZE, make_submit
from tests.fake_executor import FakeExecutor
from tests.memory_tier import MemoryTier
from tests.tiered_engine import WAIT_S, TieredEngine

PROMPT = [(5 * i + i * i) % 90 for i in range(6 * PAGE_SIZE + 3)]
ROOT = stored_root(b"root", "raw", CODEC_VERSION)


@pytest.fixture
def tier() -> MemoryTier:
    return MemoryTier()


@pytest.fixture
def engine(tier: MemoryTier) -> Iterator[TieredEngine]:
    engine = TieredEngine([tier])
    yield engine
    engine.close()


def identities(num_pages: int) -> list[bytes]:
    root = tenant_root(ROOT, make_submit("any", PROMPT).namespace)
    return list(page_identities(root, PROMPT[: num_pages * PAGE_SIZE], page_size=PAGE_SIZE))


def test_a_prefix_that_the_device_served_was_used_for_the_tiers_too(
    engine: TieredEngine, tier: MemoryTier
) -> None:
    engine.ask(make_submit("first", PROMPT))
    engine.settle()
    assert tier.touched == []
    engine.ask(make_submit("again", PROMPT))
    engine.settle()
    assert tier.touched == identities(6)
    assert tier.num_calls("fetch") == 0


def test_a_prefix_is_told_once_in_a_while_and_another_one_at_once(
    engine: TieredEngine, tier: MemoryTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        engine.ask(make_submit(f"same {number}", PROMPT))
    engine.ask(make_submit("shorter", PROMPT[: 3 * PAGE_SIZE + 1]))
    engine.settle()
    assert tier.touched == [*identities(6), *identities(3)]
    monkeypatch.setattr(prefix_uses, "INTERVAL_NS", 0)
    engine.ask(make_submit("later", PROMPT))
    engine.settle()
    assert tier.num_calls("touch") == 3


def test_who_takes_no_prefix_uses_none(engine: TieredEngine, tier: MemoryTier) -> None:
    engine.ask(make_submit("first", PROMPT))
    engine.ask(make_submit("none", PROMPT, use_cache=False))
    engine.settle()
    assert tier.touched == []


def test_on_disk_a_prefix_in_use_outlives_newer_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound has room for two prompts; one is asked again and again, others come once."""
    monkeypatch.setattr(prefix_uses, "INTERVAL_NS", 0)
    payload = bytes(FakeExecutor(PAGE_SIZE, VOCAB_SIZE).page_io.page_bytes)
    keys = [PageKey(identity, bytes(4 * PAGE_SIZE)) for identity in identities(6)]
    disk = DiskTier(tmp_path, root=ROOT, max_bytes=13 * encoded_len(keys[0], payload))
    engine = TieredEngine([disk])
    for number in range(5):
        engine.ask(make_submit(f"hot {number}", PROMPT))
        engine.ask(make_submit(f"new {number}", [number, *PROMPT]))
        engine.settle()
    assert disk.counts.num_stored == 6 * 6
    assert disk.count_leading(keys) == 6
    engine.close()


def test_a_tier_that_outlasts_the_engine_rings_nobody(
    engine: TieredEngine, tier: MemoryTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What listened is closed by then, and its descriptor may be another file's."""
    monkeypatch.setattr(lower_tiers, "FLUSH_S", 0.01)
    tier.hold()
    engine.submit(make_submit("waits", PROMPT))
    engine.step()
    engine.close()
    assert not tier.is_closed
    engine.rung.clear()
    tier.release()
    fetching = engine.tier_set._fetching._thread
    fetching.join(WAIT_S)
    assert not fetching.is_alive()
    assert tier.num_calls("count") == 1
    assert not engine.rung.is_set()
