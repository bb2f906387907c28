"""Which tiers a runtime opens, and what ends its start."""

import logging
import threading
from pathlib import Path

import msgspec
import pytest

from prefix_cache.identity import stored_root
from runtime.config import TierConfig
from runtime.errors import ConfigError
from runtime.kv_codec import CODEC_VERSION
from runtime.open_tiers import StoredKv, open_tiers, take_redis_url
from runtime.tier_threads import TierSet
from runtime.worker_process import CACHE_REDIS_VARIABLE

KV = StoredKv(
    kv_root=b"model" * 4,
    page_size=16,
    page_bytes=1024,
    kv_dtype="bfloat16",
    device="cpu",
    incarnation="first",
)


def opened(config: TierConfig, *, device: str = "cpu", kv_dtype: str = "bfloat16") -> TierSet:
    kv = StoredKv(KV.kv_root, 16, 1024, kv_dtype, device, "first")
    tiers = open_tiers(config, kv, redis_url=None, ring=lambda: None)
    assert tiers is not None
    tiers.close(timeout_s=10)
    return tiers


def labels(tiers: TierSet) -> list[str]:
    return [use.name for use in tiers.uses()]


def test_without_a_tier_nothing_is_opened_and_no_thread_runs() -> None:
    before = set(threading.enumerate())
    assert open_tiers(TierConfig(), KV, redis_url=None, ring=lambda: None) is None
    assert set(threading.enumerate()) == before


def test_host_memory_is_a_tier_of_a_gpu_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = TierConfig(disk_dir=str(tmp_path), host_bytes=1 << 20)
    assert labels(opened(config, device="cuda")) == ["host", "disk"]
    assert caplog.messages == []
    with caplog.at_level(logging.INFO):
        assert labels(opened(config)) == ["disk"]
    assert [one for one in caplog.messages if "host memory" in one] != []
    only_host = msgspec.structs.replace(config, disk_dir=None)
    assert open_tiers(only_host, KV, redis_url=None, ring=lambda: None) is None


def test_formats_have_roots_of_their_own(tmp_path: Path) -> None:
    roots = {
        opened(TierConfig(disk_dir=str(tmp_path), format=name)).root for name in ("raw", "int8")
    }
    assert roots == {stored_root(KV.kv_root, name, CODEC_VERSION) for name in ("raw", "int8")}
    assert len(roots | {KV.kv_root}) == 3


def test_what_is_exact_cannot_be_stored_in_int8(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not exact"):
        opened(TierConfig(disk_dir=str(tmp_path), format="int8"), kv_dtype="float32")


def test_a_url_that_is_none_is_an_error_of_the_settings() -> None:
    with pytest.raises(ConfigError):
        open_tiers(TierConfig(), KV, redis_url="http://nowhere", ring=lambda: None)


def test_the_url_is_no_longer_in_the_environment() -> None:
    environment = {CACHE_REDIS_VARIABLE: "redis://:password@host", "OTHER": "1"}
    assert take_redis_url(environment) == "redis://:password@host"
    assert environment == {"OTHER": "1"}
    assert take_redis_url(environment) is None
