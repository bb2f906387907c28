"""All that is CUDA's alone: compiling attention, recording graphs, what the machine must have for
both. Everything else of the executor for GPUs also runs on the CPU (runtime/flex_executor.py)."""

import logging
import os
from collections.abc import Callable
from importlib.util import find_spec
from shutil import which

import torch
from torch import Tensor

from runtime.batch import PageId, RowKey, ScheduledBatch, ScheduledRow
from runtime.decoder_spec import DecoderSpec
from runtime.decoder_weights import DecoderWeights, load_decoder_weights
from runtime.flex_attention import attend_pages
from runtime.flex_executor import build_flex_executor
from runtime.model_facts import ModelSource
from runtime.pool_limits import PoolLimits
from runtime.torch_executor import TorchExecutor, build_torch_executor

logger = logging.getLogger(__name__)

# Before a recording a step must have run twice: the first compiles and lets libraries set
# themselves up, which a recording may not contain.
_NUM_WARM_UPS = 2
_MIN_TILE = 16  # what Triton's matrix products take at least
# One compilation for each number of blocks, of prompts and of decode rows; torch's own limit is 8.
_MAX_COMPILATIONS = 64


def build_cuda_executor(
    source: ModelSource,
    spec: DecoderSpec,
    limits: PoolLimits,
    *,
    dtype: torch.dtype,
    device: torch.device,
) -> TorchExecutor:
    """Raises: ModelError for weights that cannot be loaded."""
    obstacle = _find_obstacle(spec, page_size=limits.page_size)
    if obstacle is None:
        weights = load_decoder_weights(source, dtype=dtype, device=device)
        executor = build_compiled_executor(spec, weights, limits, dtype=dtype, device=device)
        try:
            _warm_up(executor)
        except RuntimeError as error:  # what torch's compiler and CUDA raise
            obstacle = str(error).strip().partition("\n")[0]
            del executor, weights
        else:
            return executor
    logger.warning("attention is not compiled, which is slower: %s", obstacle)
    return build_torch_executor(source, spec, limits, dtype=dtype, device=device)


def build_compiled_executor(
    spec: DecoderSpec,
    weights: DecoderWeights,
    limits: PoolLimits,
    *,
    dtype: torch.dtype,
    device: torch.device,
    record: bool = True,
) -> TorchExecutor:
    """`record` False: no graphs, every step operation by operation."""
    torch._dynamo.config.recompile_limit = _MAX_COMPILATIONS
    return build_flex_executor(
        spec,
        weights,
        limits,
        dtype=dtype,
        device=device,
        attend=torch.compile(attend_pages, fullgraph=True, dynamic=False),
        capture=GraphCapture() if record else None,
    )


class GraphCapture:
    """Records functions as CUDA graphs, which share one pool of memory: what one gives is good
    until another is replayed. Implements runtime.decode_graphs.Capture."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, function: Callable[[], Tensor]) -> Callable[[], Tensor]:
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_NUM_WARM_UPS):
                function()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            output = function()

        def replay() -> Tensor:
            graph.replay()
            return output

        return replay


def _warm_up(executor: TorchExecutor) -> None:
    """Compiles before the server is ready what the first request needs: a short prompt, one row
    that decodes. What that writes into page 0 is overwritten by whom the page is given to."""
    pages = (PageId(0),)
    prompt = ScheduledRow(RowKey(0), (0, 0), 0, pages, (1,))
    decode = ScheduledRow(RowKey(0), (0,), 2, pages, (0,))
    for number, row in enumerate((prompt, decode)):
        executor.forward(ScheduledBatch(step=number, rows=(row,)))


def _find_obstacle(spec: DecoderSpec, *, page_size: int) -> str | None:
    """Why attention cannot be compiled for this model on this machine; None = it can."""
    if find_spec("triton") is None:
        return "triton is not installed; `make setup TORCH=cuda` installs it"
    compilers = (os.environ.get("CC") or "cc", "gcc", "clang")
    if not any(which(compiler) for compiler in compilers):
        return "triton needs a C compiler, and none was found"
    if spec.head_dim < _MIN_TILE or page_size % _MIN_TILE:
        return f"heads of {spec.head_dim} and pages of {page_size} tokens are not for its tiles"
    return None
