"""Loads a model onto a device and runs scheduled batches on it. Owns all device tensors.

Called by the engine's loop alone, from one thread.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from prefix_cache.identity import KvLayout
from runtime.attention import LAYOUT_VERSION, AttentionPlan, PagedAttention
from runtime.batch import Executor, SampledToken, SamplePlan, ScheduledBatch
from runtime.config import ResolvedConfig, RuntimeConfig, resolve
from runtime.decoder import Decoder
from runtime.decoder_spec import DecoderSpec
from runtime.decoder_weights import load_decoder_weights
from runtime.errors import ConfigError
from runtime.hardware import detect_hardware
from runtime.model_facts import ModelSource
from runtime.sampler import sample

# A matmul pays for each number of rows it has not seen yet (0.8 ms a shape in bfloat16, 0.4 in
# float32), so batches are padded to one of these numbers.
_ROW_BUCKETS = (1, 2, 4, 8, 12, 16, *range(32, 128, 16), *range(128, 1024, 32))


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


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """A batch as tensors: [M] tokens and positions, padded; [S] tokens whose logits are wanted."""

    token_ids: Tensor
    positions: Tensor
    sampled: Tensor
    plan: AttentionPlan


def load_executor(source: ModelSource, config: RuntimeConfig) -> LoadedModel:
    """Raises: ModelError for weights that cannot be loaded, ConfigError for settings that do not
    fit the model or the machine."""
    resolved = resolve(config, detect_hardware())
    if resolved.num_threads is not None:
        torch.set_num_threads(resolved.num_threads)
    dtype: torch.dtype = getattr(torch, resolved.dtype)
    num_pages = _num_pages(source.spec, config, dtype=dtype)
    max_model_len = settle_max_model_len(
        asked=config.max_model_len,
        model_limit=source.spec.max_position,
        pool_tokens=num_pages * config.page_size,
    )
    spec = source.spec.for_context(max_model_len)
    return LoadedModel(
        executor=_build_executor(
            source,
            spec,
            resolved=resolved,
            num_pages=num_pages,
            page_size=config.page_size,
            max_model_len=max_model_len,
        ),
        num_pages=num_pages,
        page_size=config.page_size,
        max_model_len=max_model_len,
        dtype=resolved.dtype,
        device=resolved.device,
        kv_root=_kv_layout(source, spec, resolved).digest(),
        vocab_size=spec.vocab_size,
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


class TorchExecutor:
    """Implements runtime.batch.Executor with torch."""

    def __init__(self, model: Decoder, attention: PagedAttention, *, device: torch.device) -> None:
        self._model = model
        self._attention = attention
        self._device = device
        self._logits: Tensor | None = None

    @torch.inference_mode()
    def forward(self, batch: ScheduledBatch) -> None:
        self._attention.copy_slots(batch.copies)
        self._logits = None
        if not batch.rows:
            return
        prepared = self._prepare(batch)
        hidden = self._model.forward(
            prepared.token_ids,
            prepared.positions,
            attention=self._attention,
            plan=prepared.plan,
        )
        num_sampled = prepared.sampled.shape[0]
        if num_sampled:
            padded = _pad(prepared.sampled)
            self._logits = self._model.logits(hidden[padded])[:num_sampled]

    @torch.inference_mode()
    def sample(self, plan: SamplePlan) -> tuple[SampledToken, ...]:
        if not plan.rows:
            return ()
        assert self._logits is not None, "sample() follows a forward() that wanted logits"
        assert self._logits.shape[0] == len(plan.rows), "one plan row a wanted logits row"
        return sample(self._logits, plan)

    def _prepare(self, batch: ScheduledBatch) -> PreparedBatch:
        token_ids = [token_id for row in batch.rows for token_id in row.token_ids]
        positions = [
            position
            for row in batch.rows
            for position in range(row.start, row.start + len(row.token_ids))
        ]
        return PreparedBatch(
            token_ids=_pad(self._tensor(token_ids)),
            positions=_pad(self._tensor(positions)),
            sampled=self._tensor(list(_sampled_indices(batch))),
            plan=self._attention.plan(batch),
        )

    def _tensor(self, values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=self._device)


def _sampled_indices(batch: ScheduledBatch) -> Iterator[int]:
    """Where, among all tokens of the batch, the wanted logits are."""
    first_token = 0
    for row in batch.rows:
        yield from (first_token + offset for offset in row.sample_offsets)
        first_token += len(row.token_ids)


def _pad(values: Tensor) -> Tensor:
    """values: [N] -> [M] with zeros after the N, M the next bucket."""
    num_rows = values.shape[0]
    bucket = bisect_left(_ROW_BUCKETS, num_rows)
    padded_rows = _ROW_BUCKETS[bucket] if bucket < len(_ROW_BUCKETS) else num_rows
    return torch.nn.functional.pad(values, (0, padded_rows - num_rows))


def _num_pages(spec: DecoderSpec, config: RuntimeConfig, *, dtype: torch.dtype) -> int:
    page_bytes = PagedAttention.page_bytes(spec, page_size=config.page_size, dtype=dtype)
    num_pages = config.kv_memory_bytes // page_bytes
    if num_pages < 1:
        raise ConfigError(
            f"kv_memory_bytes is {config.kv_memory_bytes}, but one page of {config.page_size}"
            f" tokens takes {page_bytes} bytes"
        )
    return num_pages


def _build_executor(
    source: ModelSource,
    spec: DecoderSpec,
    *,
    resolved: ResolvedConfig,
    num_pages: int,
    page_size: int,
    max_model_len: int,
) -> TorchExecutor:
    dtype: torch.dtype = getattr(torch, resolved.dtype)
    device = torch.device(resolved.device)
    weights = load_decoder_weights(source, dtype=dtype, device=device)
    attention = PagedAttention(
        spec, num_pages=num_pages, page_size=page_size, dtype=dtype, device=device
    )
    model = Decoder(spec, weights, max_position=max_model_len)
    return TorchExecutor(model, attention, device=device)


def _kv_layout(source: ModelSource, spec: DecoderSpec, resolved: ResolvedConfig) -> KvLayout:
    return KvLayout(
        model_hash=source.content_hash(),
        # The tokenizer lies in the same files, so their hash covers it.
        tokenizer_hash=source.content_hash(),
        rope=repr([(layer.rotary, layer.window) for layer in spec.layers]),
        kv_dtype=resolved.dtype,
        layout_version=LAYOUT_VERSION,
    )
