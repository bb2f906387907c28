"""Decode steps that are recorded once for a number of rows and replayed: which batches qualify,
padding, the buffers between host and graph. How to record is injected; runtime/cuda_executor.py
knows CUDA's way. Called by the executor.

Letters: B rows of a bucket, W pages of a page table, V vocabulary.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from runtime.batch import ScheduledBatch
from runtime.hardware import IntArray, to_device
from runtime.row_buckets import ROW_BUCKETS, round_up_to_bucket

logger = logging.getLogger(__name__)

_TOKEN, _POSITION, _FIRST_PAGE = 0, 1, 2  # columns of a graph's input

# Runs a function until it can be replayed; what is returned runs it again, over the same tensors,
# and gives the same output tensor with new values.
Capture = Callable[[Callable[[], Tensor]], Callable[[], Tensor]]


@dataclass(frozen=True, slots=True)
class DecodeInputs:
    """A step of one new token a row, on the device. token_ids and positions: [B] int32,
    page_table: [B, W] int32, padded with the scratch page."""

    token_ids: Tensor
    positions: Tensor
    page_table: Tensor


@dataclass(frozen=True, slots=True)
class DecodeGraph:
    """`replay` reads `inputs`, [B, 2 + W] int32, and gives logits, [B, V] float32."""

    inputs: Tensor
    replay: Callable[[], Tensor]


class DecodeGraphs:
    """At most `max_graphs` recordings, made when a batch of their size first comes.

    A padding row is token 0 at position 0 of the scratch page, which no sequence owns.
    """

    def __init__(
        self,
        compute: Callable[[DecodeInputs], Tensor],
        capture: Capture,
        *,
        table_width: int,
        scratch_page: int,
        device: torch.device,
        max_graphs: int = len(ROW_BUCKETS),
    ) -> None:
        self._compute = compute
        self._capture = capture
        self._table_width = table_width
        self._scratch_page = scratch_page
        self._device = device
        self._max_graphs = max_graphs
        self._graphs: dict[int, DecodeGraph] = {}

    def run(self, batch: ScheduledBatch) -> Tensor | None:
        """The logits of all rows, [rows, V], good until the next call; None = not for a graph."""
        num_rows = len(batch.rows)
        if not _is_decode(batch) or num_rows > ROW_BUCKETS[-1]:
            return None
        bucket = self._bucket_for(num_rows)
        if bucket is None:
            return None
        inputs = self._host_inputs(batch, bucket)
        graph = self._graphs.get(bucket)
        if graph is not None:
            graph.inputs.copy_(to_device(inputs, self._device), non_blocking=True)
        else:
            graph = self._try_record(inputs)
        return None if graph is None else graph.replay()[:num_rows]

    def _bucket_for(self, num_rows: int) -> int | None:
        """The smallest bucket, or where no more may be recorded the smallest that is."""
        bucket = round_up_to_bucket(num_rows)
        if bucket in self._graphs or len(self._graphs) < self._max_graphs:
            return bucket
        return min((size for size in self._graphs if size >= num_rows), default=None)

    def _host_inputs(self, batch: ScheduledBatch, bucket: int) -> IntArray:
        inputs = np.full((bucket, _FIRST_PAGE + self._table_width), self._scratch_page, np.int32)
        inputs[:, :_FIRST_PAGE] = 0
        for line, row in zip(inputs, batch.rows, strict=False):
            line[_TOKEN], line[_POSITION] = row.token_ids[0], row.start
            page_ids = row.page_ids[: self._table_width]
            line[_FIRST_PAGE : _FIRST_PAGE + len(page_ids)] = page_ids
        return inputs

    def _try_record(self, inputs: IntArray) -> DecodeGraph | None:
        """None where that fails, such as for want of memory; then no other size is tried."""
        bucket = inputs.shape[0]
        try:
            graph = self._graphs[bucket] = self._record(inputs)
        except RuntimeError as error:
            reason = str(error).strip().partition("\n")[0]
            logger.warning(
                "a step of %d rows cannot be recorded, nor will others be: %s", bucket, reason
            )
            self._max_graphs = len(self._graphs)
            return None
        return graph

    def _record(self, inputs: IntArray) -> DecodeGraph:
        # A copy of its own: a graph reads this memory for as long as it lives.
        static = to_device(inputs, self._device).clone()
        columns = DecodeInputs(static[:, _TOKEN], static[:, _POSITION], static[:, _FIRST_PAGE:])
        return DecodeGraph(static, self._capture(lambda: self._compute(columns)))


def _is_decode(batch: ScheduledBatch) -> bool:
    """Whether every row has one new token, whose logits are wanted."""
    return bool(batch.rows) and all(
        len(row.token_ids) == 1 and len(row.sample_offsets) == 1 for row in batch.rows
    )
