"""Loads a model onto a device: chooses the executor that runs its steps, and its limits."""

import logging
from dataclasses import dataclass

import torch

from prefix_cache.identity import KvLayout
from runtime.batch import Executor
from runtime.config import ResolvedConfig, RuntimeConfig, resolve
from runtime.cuda_executor import build_cuda_executor
from runtime.decoder_spec import DecoderSpec
from runtime.errors import ConfigError
from runtime.hardware import Hardware, detect_hardware
from runtime.kv_pages import LAYOUT_VERSION, page_bytes
from runtime.model_facts import ModelSource
from runtime.native.loading import load_native_executor
from runtime.native.native_decoder import KV_DTYPE, KV_LAYOUT_VERSION, find_obstacle
from runtime.pool_limits import PoolLimits
from runtime.torch_executor import build_torch_executor

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to run, and what was settled while loading it."""

    executor: Executor
    num_pages: int
    page_size: int
    max_model_len: int
    dtype: str
    device: str
    kv_root: bytes
    vocab_size: int
    page_bytes: int
    kv_dtype: str


def load_executor(source: ModelSource, config: RuntimeConfig) -> LoadedModel:
    """Raises: ModelError for weights that cannot be loaded, ConfigError for settings that do not
    fit the model or the machine."""
    hardware = detect_hardware()
    resolved = _resolve(source, config, hardware)
    if resolved.num_threads is not None:
        torch.set_num_threads(resolved.num_threads)
    limits = _limits(source, config, kv_dtype=_kv_dtype(resolved))
    spec = source.spec.for_context(limits.max_model_len)
    return LoadedModel(
        executor=_build_executor(source, spec, config, resolved, hardware=hardware, limits=limits),
        num_pages=limits.num_pages,
        page_size=limits.page_size,
        max_model_len=limits.max_model_len,
        dtype=resolved.dtype,
        device=resolved.device,
        kv_root=_kv_layout(source, spec, resolved).digest(),
        vocab_size=spec.vocab_size,
        page_bytes=page_bytes(spec, page_size=limits.page_size, dtype=_kv_dtype(resolved)),
        kv_dtype=str(_kv_dtype(resolved)).removeprefix("torch."),
    )


def settle_max_model_len(*, asked: int | None, model_limit: int, pool_tokens: int) -> int:
    """The longest sequence, prompt and answer together, that will be accepted.

    Raises: ConfigError where more is asked than the model or the page pool can do.
    """
    if asked is None:
        return min(model_limit, pool_tokens)
    if asked > model_limit:
        raise ConfigError(f"max_model_len is {asked}, but the model's context is {model_limit}")
    if asked > pool_tokens:
        raise ConfigError(
            f"max_model_len is {asked}, but the KV memory holds {pool_tokens} tokens;"
            " enlarge it or lower max_model_len"
        )
    return asked


def _resolve(source: ModelSource, config: RuntimeConfig, hardware: Hardware) -> ResolvedConfig:
    """With the model's shape looked at: where the native step cannot run it, `auto` is torch."""
    resolved = resolve(config, hardware)
    if config.dtype == "auto" and resolved.device == "cpu" and resolved.dtype != "int8":
        logger.info("without a C++ compiler (g++) there is no native step: torch alone is slower")
    obstacle = find_obstacle(source.spec, page_size=config.page_size)
    if resolved.dtype != "int8" or obstacle is None:
        return resolved
    if config.dtype == "int8":
        raise ConfigError(f"dtype is int8, but the native step cannot run this: {obstacle}")
    logger.info("this model runs without the native step: %s", obstacle)
    return ResolvedConfig(
        resolved.device, resolved.torch_dtype, resolved.torch_dtype, resolved.num_threads
    )


def _limits(source: ModelSource, config: RuntimeConfig, *, kv_dtype: torch.dtype) -> PoolLimits:
    page_size = config.page_size
    bytes_a_page = page_bytes(source.spec, page_size=page_size, dtype=kv_dtype)
    num_pages = config.kv_memory_bytes // bytes_a_page
    if num_pages < 1:
        raise ConfigError(
            f"kv_memory_bytes is {config.kv_memory_bytes}, but one page of {page_size}"
            f" tokens takes {bytes_a_page} bytes"
        )
    max_model_len = settle_max_model_len(
        asked=config.max_model_len,
        model_limit=source.spec.max_position,
        pool_tokens=num_pages * page_size,
    )
    return PoolLimits(num_pages, page_size, max_model_len)


def _build_executor(
    source: ModelSource,
    spec: DecoderSpec,
    config: RuntimeConfig,
    resolved: ResolvedConfig,
    *,
    hardware: Hardware,
    limits: PoolLimits,
) -> Executor:
    if resolved.dtype == "int8":
        return load_native_executor(
            source,
            spec,
            limits,
            model=config.model,
            cpu_flags=hardware.cpu_flags,
            torch_dtype=getattr(torch, resolved.torch_dtype),
        )
    dtype, device = getattr(torch, resolved.dtype), torch.device(resolved.device)
    build = build_cuda_executor if resolved.device == "cuda" else build_torch_executor
    return build(source, spec, limits, dtype=dtype, device=device)


def _kv_dtype(resolved: ResolvedConfig) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, resolved.torch_dtype)
    return KV_DTYPE if resolved.dtype == "int8" else dtype


def _kv_layout(source: ModelSource, spec: DecoderSpec, resolved: ResolvedConfig) -> KvLayout:
    is_native = resolved.dtype == "int8"
    return KvLayout(
        model_hash=source.content_hash(),
        # The tokenizer lies in the same files, so their hash covers it.
        tokenizer_hash=source.content_hash(),
        rope=repr([(layer.rotary, layer.window) for layer in spec.layers]),
        kv_dtype="int8 weights, bfloat16" if is_native else resolved.dtype,
        layout_version=KV_LAYOUT_VERSION if is_native else LAYOUT_VERSION,
    )
