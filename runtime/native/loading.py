"""Makes the executor of a model for the native step: at once where it was built before, else with
torch until a child has built it."""

import contextlib
import logging
from collections.abc import Set
from typing import Any

import torch

from runtime.batch import Executor
from runtime.decoder_spec import DecoderSpec
from runtime.model_facts import ModelSource
from runtime.native.build import library_path
from runtime.native.instruction_sets import choose_instruction_set
from runtime.native.library import LibraryError, load_library
from runtime.native.native_decoder import NativeDecoder
from runtime.native.native_executor import NativeExecutor
from runtime.native.packed_weights import load_packed_weights
from runtime.native.preparation import Preparation
from runtime.native.upgrade import UpgradingExecutor
from runtime.pool_limits import PoolLimits
from runtime.torch_executor import build_torch_executor

logger = logging.getLogger(__name__)


def load_native_executor(
    source: ModelSource,
    spec: DecoderSpec,
    limits: PoolLimits,
    *,
    model: str,
    cpu_flags: Set[str],
    torch_dtype: torch.dtype,
) -> Executor:
    """`model` is what the settings call the model: a child opens it again. `torch_dtype`: what is
    computed in until the native step is there. Raises: ModelError."""
    path = library_path(choose_instruction_set(cpu_flags))

    def load() -> NativeExecutor:
        return build_native_executor(load_library(path), source, spec, limits)

    if path.exists():
        try:
            return load()
        except LibraryError as error:
            logger.warning("%s; it is built again", error)
            with contextlib.suppress(OSError):
                path.unlink()
    torch_executor = build_torch_executor(
        source, spec, limits, dtype=torch_dtype, device=torch.device("cpu")
    )
    try:
        preparation = Preparation.start(model)
    except OSError as error:
        reason = error.strerror or error
        logger.warning("serving goes on with torch alone: no process can be started (%s)", reason)
        torch_executor.page_io = None  # its pages are not what the native step's identity names
        return torch_executor
    return UpgradingExecutor(torch_executor, preparation, load, page_size=limits.page_size)


def build_native_executor(
    library: Any, source: ModelSource, spec: DecoderSpec, limits: PoolLimits
) -> NativeExecutor:
    """With as many threads as torch uses. Raises: ModelError."""
    decoder = NativeDecoder(
        library,
        spec,
        load_packed_weights(source),
        limits,
        num_threads=torch.get_num_threads(),
    )
    return NativeExecutor(decoder)
