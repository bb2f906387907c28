"""Serves with torch until the native step is prepared, then goes on with that.

The exchange happens between two steps: the pages that were written are copied over, so that running
requests and the prefix cache keep what they have. Pages that torch wrote, and those computed
behind them, are not what `kv_root` names: they are `foreign_pages` of the native executor's.
"""

import contextlib
import ctypes
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

import numpy as np

from runtime.batch import Executor, PageId, SampledToken, SamplePlan, ScheduledBatch
from runtime.errors import RuntimePackageError
from runtime.messages import TokenLogprob
from runtime.native.native_executor import NativeExecutor
from runtime.torch_executor import TorchExecutor

if TYPE_CHECKING:
    from runtime.page_io import PageIo

logger = logging.getLogger(__name__)


class Prepares(Protocol):
    """What tells when the native step is there."""

    def outcome(self) -> bool | None:
        """None while it is being prepared, then whether that went well."""


class UpgradingExecutor:
    """Implements runtime.batch.Executor. `load` makes the native executor once it is prepared."""

    def __init__(
        self,
        plain: TorchExecutor,
        preparation: Prepares,
        load: Callable[[], NativeExecutor],
        *,
        page_size: int,
    ) -> None:
        self._plain: TorchExecutor | None = plain
        self._executor: Executor = plain
        self._preparation = preparation
        self._load = load
        self._page_size = page_size
        self._written: set[PageId] = set()
        self.page_io: PageIo | None = None

    def forward(self, batch: ScheduledBatch) -> None:
        if self._plain is not None:
            self._try_upgrade(self._plain)
        if self._plain is not None:
            self._note_written(batch)
        elif self._written:
            self._note_foreign(batch)
        self._executor.forward(batch)

    def sample(self, plan: SamplePlan) -> tuple[SampledToken, ...]:
        return self._executor.sample(plan)

    def score(self) -> tuple[list[TokenLogprob], ...]:
        return self._executor.score()

    def _note_written(self, batch: ScheduledBatch) -> None:
        self._written.update(copy.target for copy in batch.copies)
        for row in batch.rows:
            self._written.update(row.page_ids)

    def _note_foreign(self, batch: ScheduledBatch) -> None:
        """What is computed behind foreign pages is foreign, and what is not, no more."""
        for copy in batch.copies:
            self._mark((copy.target,), is_foreign=copy.source in self._written)
        for row in batch.rows:
            first_new = row.start // self._page_size
            num_old = -(-row.start // self._page_size)
            is_foreign = not self._written.isdisjoint(row.page_ids[:num_old])
            self._mark(row.page_ids[first_new:], is_foreign=is_foreign)

    def _mark(self, page_ids: Iterable[PageId], *, is_foreign: bool) -> None:
        if is_foreign:
            self._written.update(page_ids)
        else:
            self._written.difference_update(page_ids)

    def _try_upgrade(self, plain: TorchExecutor) -> None:
        outcome = self._preparation.outcome()
        if outcome is None:
            return
        self._plain = None
        if not outcome:
            logger.warning("serving goes on with torch alone: the native step cannot be had")
            return
        try:
            native = self._load()
        except (RuntimePackageError, MemoryError) as error:
            logger.warning("serving goes on with torch alone: %s", error)
            return
        pages = np.array(sorted(self._written), dtype=np.int32)
        for layer in range(plain.num_layers):
            native.write_pages(layer, pages, *plain.read_pages(layer, pages))
        self._executor = native
        self.page_io = native.page_io_beside(self._written)
        del plain  # the last reference: torch's weights and pages go here
        _return_memory()
        logger.info("the native step is ready: %d pages were taken over", len(pages))


def _return_memory() -> None:
    """What was freed goes back to the system, where the C library has to be told (glibc)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
