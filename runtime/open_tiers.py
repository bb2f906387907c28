"""Opens the lower tiers that a runtime is told of, in the order in which they are asked."""

import logging
import os
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prefix_cache.identity import stored_root
from runtime.config import TierConfig
from runtime.errors import ConfigError
from runtime.kv_codec import CODEC_VERSION, make_codec
from runtime.tier_threads import TierSet
from runtime.worker_process import CACHE_REDIS_VARIABLE

if TYPE_CHECKING:
    from prefix_cache.tiers.redis_tier import RedisTier
    from prefix_cache.tiers.tier import PageTier

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoredKv:
    """What of a loaded model the tiers depend on. `incarnation` names this process among those
    that share a Redis."""

    kv_root: bytes
    page_size: int
    page_bytes: int
    kv_dtype: str
    device: str
    incarnation: str


def take_redis_url(environment: MutableMapping[str, str] = os.environ) -> str | None:
    """What the process was given; it may hold a password, and no child of ours needs it."""
    return environment.pop(CACHE_REDIS_VARIABLE, None)


def open_tiers(
    config: TierConfig, kv: StoredKv, *, redis_url: str | None, ring: Callable[[], None]
) -> TierSet | None:
    """None where no tier is configured: nothing is kept then, and no thread runs.

    Raises: ConfigError.
    """
    has_host = config.host_bytes > 0 and kv.device != "cpu"
    if config.host_bytes and not has_host:
        logger.info("the cache keeps no pages in host memory: the device's pages are there already")
    if not has_host and config.disk_dir is None and redis_url is None:
        return None
    codec = make_codec(config.format, page_bytes=kv.page_bytes, dtype=kv.kv_dtype)
    root = stored_root(kv.kv_root, config.format, CODEC_VERSION)
    tiers: list[PageTier] = []
    # Imported one by one: most runtimes have none of them.
    if has_host:
        from prefix_cache.tiers.host_tier import HostTier

        tiers.append(HostTier(max_bytes=config.host_bytes))
    disk = None
    if config.disk_dir is not None:
        from prefix_cache.tiers.disk_tier import DiskTier

        disk = DiskTier(config.disk_dir, root=root, max_bytes=config.disk_bytes)
        tiers.append(disk)
    redis = None
    if redis_url is not None:
        redis = _redis_tier(config, kv, redis_url=redis_url, root=root)
        tiers.append(redis)
    directory = redis.directory if redis is not None else None
    opened = TierSet(tiers, codec=codec, root=root, ring=ring, directory=directory)
    if disk is not None:
        opened.prepare(disk.start)
    opened.warm()
    return opened


def _redis_tier(config: TierConfig, kv: StoredKv, *, redis_url: str, root: bytes) -> "RedisTier":
    from prefix_cache.tiers.agreement import Disagreement
    from prefix_cache.tiers.open_redis import open_redis_tier
    from prefix_cache.tiers.redis_url import RedisURLError

    try:
        return open_redis_tier(
            redis_url,
            root=root,
            model_id=config.model_id,
            page_size=kv.page_size,
            format=config.format,
            secret_check=config.secret_check,
            ttl_s=config.redis_ttl_s,
            holder=kv.incarnation,
        )
    except (Disagreement, RedisURLError) as error:
        raise ConfigError(str(error)) from None
