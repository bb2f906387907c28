"""From the settings to what a runtime process is told, whoever starts it."""

import logging
from pathlib import Path

from gateway.default_model import MODEL_ID, default_model_path, ensure_default_model
from gateway.settings import Settings, variable_of
from gateway.tier_settings import tier_config
from runtime.config import RuntimeConfig
from runtime.model_source import hub_name, locate_model

logger = logging.getLogger(__name__)

_MIB = 1024 * 1024
# What a gateway whose runtime is elsewhere has no use for.
_OF_THE_RUNTIME = (
    "dtype",
    "device",
    "max_model_len",
    "kv_memory_mb",
    "max_step_tokens",
    "watermark",
    "max_overtaking_s",
    "num_threads",
    "cache_disk_mb",
    "cache_host_mb",
    "cache_redis_url",
    "cache_redis_ttl_s",
    "cache_format",
    "jump_forward",
    "trace_steps",
)


def warn_of_unused(settings: Settings) -> None:
    """Says which settings have no effect, as the runtime that is used has its own, and that the
    cache forgets at each start what a random secret hides."""
    unused = [name for name in _OF_THE_RUNTIME if name in settings.model_fields_set]
    if unused:
        logger.warning(
            "%s: no effect here, they are for the runtime at %s",
            ", ".join(map(variable_of, unused)),
            settings.runtime_url,
        )
    if "server_secret" not in settings.model_fields_set and settings.cache_dir is None:
        logger.warning(
            "%s is not set: after a start, and to other gateways, what the runtime has cached is"
            " nobody's",
            variable_of("server_secret"),
        )


def find_model(settings: Settings) -> tuple[Path, str]:
    """The file or folder to serve, fetched if need be, and the model's own name.

    Raises: FetchError, ModelError, ConfigError.
    """
    if settings.model is None:
        path = default_model_path(settings.model_dir)
        ensure_default_model(path)
        return path, MODEL_ID
    path = locate_model(settings.model)
    return path, hub_name(settings.model) or path.name.removesuffix(".gguf").lower()


def runtime_config(settings: Settings, path: Path, *, model_id: str) -> RuntimeConfig:
    """What the runtime process is told. Raises: SettingsError."""
    return RuntimeConfig(
        model=str(path),
        dtype=settings.dtype,
        device=settings.device,
        max_model_len=settings.max_model_len,
        kv_memory_bytes=settings.kv_memory_mb * _MIB,
        max_running=settings.max_running,
        max_step_tokens=settings.max_step_tokens,
        watermark=settings.watermark,
        max_overtaking_s=settings.max_overtaking_s,
        jump_forward=settings.jump_forward,
        num_threads=settings.num_threads,
        pin_share=settings.cache_pin_share,
        tiers=tier_config(settings, model_id=model_id),
        trace_steps=settings.trace_steps,
    )
