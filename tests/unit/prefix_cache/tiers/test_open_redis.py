"""How the Redis tier of a runtime begins, where no Redis answers."""

import pytest

from prefix_cache.tiers.buffers import BufferPool
from prefix_cache.tiers.open_redis import open_redis_tier

NOBODY = "redis://127.0.0.1:1/0"


def test_memory_for_the_first_fetch_is_there_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    warmed: list[int] = []
    monkeypatch.setattr(BufferPool, "warm", lambda _pool, number: warmed.append(number))
    tier = open_redis_tier(
        NOBODY,
        root=bytes(32),
        model_id="model",
        page_size=16,
        format="raw",
        secret_check="check",
        ttl_s=60,
        holder="holder",
    )
    tier.close()
    assert len(warmed) == 1
    assert warmed[0] > 0
    assert not tier.is_up
