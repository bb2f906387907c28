"""What the runtime is told of its lower tiers, and which settings must go together."""

import hashlib
import hmac

from gateway.settings import Settings, SettingsError, variable_of
from prefix_cache.tiers.redis_calls import RedisCalls
from prefix_cache.tiers.redis_url import RedisURLError
from runtime.config import TierConfig

_MIB = 1024 * 1024
_CHECK_TEXT = b"radixgate: whether servers have the same secret"


def tier_config(settings: Settings, *, model_id: str) -> TierConfig:
    """Without the URL of the Redis, which goes another way (runtime.worker_process).

    Raises: SettingsError.
    """
    if settings.cache_redis_url is not None:
        _check_redis(settings, settings.cache_redis_url)
    secret = settings.server_secret.encode()
    return TierConfig(
        disk_dir=settings.cache_dir,
        disk_bytes=settings.cache_disk_mb * _MIB,
        host_bytes=settings.cache_host_mb * _MIB,
        redis_ttl_s=settings.cache_redis_ttl_s,
        format=settings.cache_format,
        model_id=model_id,
        secret_check=hmac.new(secret, _CHECK_TEXT, hashlib.sha256).hexdigest(),
    )


def _check_redis(settings: Settings, url: str) -> None:
    variable = variable_of("cache_redis_url")
    try:
        RedisCalls(url)
    except RedisURLError as error:
        raise SettingsError(f"{variable}=(hidden): {error}") from None
    if "server_secret" not in settings.model_fields_set:
        raise SettingsError(
            f"{variable} needs {variable_of('server_secret')}, the same for all servers: with"
            " random secrets none would find what another computed"
        )
