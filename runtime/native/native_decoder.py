"""A decoder with its pages, run by the native step: one call into C++ a step.

Owns the packed weights, the KV pages and the threads that run the step. Called from one thread.
"""

import ctypes
import weakref
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from runtime.batch import PageCopy, ScheduledBatch
from runtime.decoder import rotary_table
from runtime.decoder_spec import DecoderSpec, RotarySpec
from runtime.errors import ConfigError
from runtime.hardware import allocate_zeroed
from runtime.native import library as c
from runtime.native.blocks import BLOCK_LEN
from runtime.native.packed_weights import PackedMatrix, PackedWeights
from runtime.page_io import ArrayPageIo, PageIo
from runtime.pool_limits import PoolLimits
from runtime.prompt_scores import TokenScores, max_logit_rows

KV_DTYPE = torch.bfloat16
KV_LAYOUT_VERSION = 2  # goes up when the order of bytes inside a page changes
_BLOCK_SLOTS, _LANES = 16, 16
_MAX_HEAD_DIM, _MAX_QUERIES = 256, 64  # attention.h: kMaxHeadDim, kMaxQueries


def find_obstacle(spec: DecoderSpec, *, page_size: int) -> str | None:
    """Why the native step cannot run this decoder, or None where it can."""
    if spec.head_dim % _LANES or spec.head_dim > _MAX_HEAD_DIM:
        return f"a head size of {spec.head_dim} is no multiple of {_LANES} up to {_MAX_HEAD_DIM}"
    if spec.hidden_size % _LANES:
        return f"a hidden size of {spec.hidden_size} is no multiple of {_LANES}"
    if spec.num_heads // spec.num_kv_heads > _MAX_QUERIES:
        return f"more than {_MAX_QUERIES} query heads share a key-value head"
    if page_size % _BLOCK_SLOTS:
        return f"a page of {page_size} tokens is no multiple of {_BLOCK_SLOTS}"
    return None


class NativeDecoder:
    """library: what load_library returned. Raises: ConfigError if the system has not as many
    threads."""

    def __init__(
        self,
        library: Any,
        spec: DecoderSpec,
        weights: PackedWeights,
        limits: PoolLimits,
        *,
        num_threads: int,
    ) -> None:
        self._library = library
        self._spec = spec
        self._weights = weights
        self._page_size = limits.page_size
        page_len = spec.num_kv_heads * limits.page_size * spec.head_dim
        shape, cpu = (limits.num_pages, page_len), torch.device("cpu")
        self._keys = [allocate_zeroed(shape, KV_DTYPE, device=cpu) for _ in spec.layers]
        self._values = [allocate_zeroed(shape, KV_DTYPE, device=cpu) for _ in spec.layers]
        self._tables = {
            rotary: _rotary_halves(rotary, limits.max_model_len)
            for rotary in dict.fromkeys(layer.rotary for layer in spec.layers)
        }
        self._paged = [self._paged_kv(layer) for layer in range(spec.num_layers)]
        self._feed_forwards = [self._layer_ffns(layer) for layer in range(spec.num_layers)]
        self._logits = torch.empty(0, spec.vocab_size)
        self._handle = library.rg_create(ctypes.byref(self._model()), num_threads)
        if not self._handle:
            raise ConfigError(
                f"the system has no room for the native step with {num_threads} threads; lower"
                " num_threads"
            )
        weakref.finalize(self, library.rg_destroy, self._handle)

    def step(self, batch: ScheduledBatch) -> Tensor:
        """Computes the batch's tokens, writes their keys and values -> logits of the wanted ones,
        [S, V] float32, valid until the next step. The batch has rows."""
        rows = batch.rows
        token_ids = _ints([token for row in rows for token in row.token_ids])
        row_tokens = [len(row.token_ids) for row in rows]
        first_tokens = list(accumulate(row_tokens, initial=0))[:-1]
        sampled = _ints(
            [
                first + offset
                for first, row in zip(first_tokens, rows, strict=True)
                for offset in row.sample_offsets
            ]
        )
        page_counts = [len(row.page_ids) for row in rows]
        arrays = {
            "token_ids": token_ids,
            "row_tokens": _ints(row_tokens),
            "row_starts": _ints([row.start for row in rows]),
            "row_pages": _ints(list(accumulate(page_counts, initial=0))[:-1]),
            "pages": _ints([page for row in rows for page in row.page_ids]),
            "sampled": sampled,
        }
        logits = self._logits_for(len(sampled))
        c_batch = c.Batch(
            num_rows=len(rows),
            num_tokens=len(token_ids),
            num_sampled=len(sampled),
            logits=logits.data_ptr(),
            **{name: array.ctypes.data for name, array in arrays.items()},
        )
        if not self._library.rg_step(self._handle, ctypes.byref(c_batch)):
            raise MemoryError("the native step ran out of memory")
        return logits

    def score(
        self, places: Sequence[int], token_ids: Sequence[int], *, num_best: int
    ) -> TokenScores:
        """Of `token_ids` behind the tokens at `places` among those of the last step."""
        num_scored = len(places)
        c_places, c_token_ids = _ints(places), _ints(token_ids)
        own = np.empty(num_scored, np.float32)
        best = np.empty((num_scored, num_best), np.float32)
        best_ids = np.empty((num_scored, num_best), np.int32)
        c_scores = c.Scores(
            num_scored=num_scored,
            num_best=num_best,
            max_rows=max_logit_rows(self._spec.vocab_size),
            places=c_places.ctypes.data,
            token_ids=c_token_ids.ctypes.data,
            own=own.ctypes.data,
            best=best.ctypes.data,
            best_ids=best_ids.ctypes.data,
        )
        if not self._library.rg_score(self._handle, ctypes.byref(c_scores)):
            raise MemoryError("the native step ran out of memory")
        return TokenScores(own, best, best_ids)

    def copy_slots(self, copies: Iterable[PageCopy]) -> None:
        """Copies the first slots of pages in all layers, before the step that reads them."""
        for copy in copies:
            for paged in self._paged:
                self._library.rg_copy_slots(
                    ctypes.byref(paged), copy.source, copy.target, copy.num_slots
                )

    def page_io(self, foreign_pages: AbstractSet[int]) -> PageIo:
        """Reads and writes whole pages as bytes: keys, then values of each layer in turn."""
        pairs = zip(self._keys, self._values, strict=True)
        arrays = [store.view(torch.uint8).numpy() for pair in pairs for store in pair]
        return ArrayPageIo(arrays, page_axis=0, dtype="bfloat16", foreign_pages=foreign_pages)

    def write_pages(
        self, layer: int, pages: npt.NDArray[np.int32], keys: Tensor, values: Tensor
    ) -> None:
        """Sets pages of one layer. keys and values: [P, page_size, G, d] float32, contiguous."""
        self._library.rg_write_pages(
            ctypes.byref(self._paged[layer]),
            pages.ctypes.data,
            len(pages),
            keys.data_ptr(),
            values.data_ptr(),
        )

    def choose(self, logits: Tensor, choices: Sequence[c.Choice]) -> tuple[list[int], list[float]]:
        """The token of each row and its score, -inf where no token is allowed.
        logits: [S, V] float32."""
        num_rows = logits.shape[0]
        tokens, scores = np.empty(num_rows, np.int32), np.empty(num_rows, np.float32)
        is_done = self._library.rg_choose(
            logits.data_ptr(),
            num_rows,
            self._spec.vocab_size,
            (c.Choice * num_rows)(*choices),
            tokens.ctypes.data,
            scores.ctypes.data,
        )
        if not is_done:
            raise MemoryError("the native step ran out of memory")
        return tokens.tolist(), scores.tolist()

    def _logits_for(self, num_sampled: int) -> Tensor:
        """A view of memory that is kept: pages of the system are taken once."""
        if self._logits.shape[0] < num_sampled:
            self._logits = torch.empty(num_sampled, self._spec.vocab_size)
        return self._logits[:num_sampled]

    def _model(self) -> c.Model:
        spec = self._spec
        experts = spec.experts
        layers = (c.Layer * spec.num_layers)(*map(self._layer, range(spec.num_layers)))
        self._c_layers = layers  # the structure points to it
        embedding = self._weights.matrices["embedding"]
        return c.Model(
            layers=layers,
            embedding=_matrix(embedding),
            output=_matrix(self._weights.matrices.get("output", embedding)),
            final_norm=self._pointer("final_norm"),
            num_layers=spec.num_layers,
            hidden_size=spec.hidden_size,
            num_heads=spec.num_heads,
            num_kv_heads=spec.num_kv_heads,
            head_dim=spec.head_dim,
            ffn_size=_padded(spec.ffn_size),
            vocab_size=spec.vocab_size,
            page_size=self._page_size,
            is_gelu=spec.activation == "gelu_tanh",
            num_experts=experts.num_experts if experts else 0,
            num_used_experts=experts.num_used if experts else 0,
            expert_ffn_size=_padded(experts.ffn_size) if experts else 0,
            normalize_experts=experts.normalize if experts else False,
            norm_eps=spec.norm_eps,
            attention_scale=spec.attention_scale,
            embedding_scale=spec.embedding_scale,
            attention_softcap=spec.attention_softcap or 0.0,
            logit_softcap=spec.logit_softcap or 0.0,
        )

    def _layer(self, index: int) -> c.Layer:
        spec, matrices = self._spec.layers[index], self._weights.matrices
        cos, sin = self._tables[spec.rotary]
        pointers = {name: self._pointer(f"{index}.{name}") for name in _LAYER_ARRAYS}
        return c.Layer(
            qkv=_matrix(matrices[f"{index}.qkv"]),
            attention_output=_matrix(matrices[f"{index}.attention_output"]),
            ffns=self._feed_forwards[index],
            cos=cos.data_ptr(),
            sin=sin.data_ptr(),
            keys=self._keys[index].data_ptr(),
            values=self._values[index].data_ptr(),
            num_rotary=2 * cos.shape[1],
            window=spec.window or 0,
            has_experts=spec.has_experts,
            **pointers,
        )

    def _layer_ffns(self, index: int) -> "ctypes.Array[c.FeedForward]":
        matrices, spec = self._weights.matrices, self._spec
        is_sparse = spec.experts is not None and spec.layers[index].has_experts
        num_ffns = spec.experts.num_experts if spec.experts is not None and is_sparse else 1
        ffns = [
            c.FeedForward(
                gate_up=_matrix(matrices[f"{index}.ffns.{number}.gate_up"]),
                down=_matrix(matrices[f"{index}.ffns.{number}.down"]),
            )
            for number in range(num_ffns)
        ]
        return (c.FeedForward * num_ffns)(*ffns)

    def _paged_kv(self, layer: int) -> c.PagedKv:
        return c.PagedKv(
            keys=self._keys[layer].data_ptr(),
            values=self._values[layer].data_ptr(),
            num_kv_heads=self._spec.num_kv_heads,
            head_dim=self._spec.head_dim,
            page_size=self._page_size,
        )

    def _pointer(self, name: str) -> int | None:
        array = self._weights.arrays.get(name)
        return None if array is None else array.data_ptr()


# Vectors and routers of a layer: the same names in PackedWeights and in the C structure.
_LAYER_ARRAYS = (
    "attention_norm", "ffn_norm", "qkv_bias", "attention_output_bias", "q_norm", "k_norm",
    "post_attention_norm", "post_ffn_norm", "router",
)  # fmt: skip


def _rotary_halves(rotary: RotarySpec, max_position: int) -> tuple[Tensor, Tensor]:
    """cos and sin, [max_position, pairs] float32: both parts of a pair turn by the same angle."""
    tables = rotary_table(rotary, max_position, device=torch.device("cpu"))
    cos, sin = (table[:, : table.shape[1] // 2].contiguous() for table in tables)
    return cos, sin


def _matrix(matrix: PackedMatrix) -> c.Matrix:
    return c.Matrix(
        data=matrix.data.data_ptr(),
        scale=matrix.scale,
        bits=matrix.bits,
        num_outputs=matrix.num_outputs,
        num_blocks=matrix.num_blocks,
    )


def _padded(size: int) -> int:
    return -(-size // BLOCK_LEN) * BLOCK_LEN


def _ints(values: Sequence[int]) -> npt.NDArray[np.int32]:
    return np.array(values, dtype=np.int32)
