"""Has the system give memory for the pages that come next before somebody waits for them.

The pool is taken from the system as it is first written to, so that an idle server is small. On a
virtual machine that takes 20 us for 4 KiB: half of the time in which a prefix of 1,400 tokens comes
back after a restart. Owned by LowerTiers, in the engine's thread; done in idle time.
"""

import time
from collections.abc import Callable

import numpy as np

from prefix_cache import PrefixCache
from runtime.page_io import ArrayPageIo, PageIo

# The pages of a prompt of 1,400 tokens of a small model.
WARM_BYTES = 32 * 1024 * 1024
PIECE_NS = 5_000_000


class WarmUp:
    """Writes once to each of the free pages that will be taken next, as far as WARM_BYTES."""

    def __init__(
        self,
        cache: PrefixCache,
        *,
        page_io: Callable[[], PageIo | None],
        clock_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._cache = cache
        self._page_io = page_io
        self._clock_ns = clock_ns
        self._is_warm = bytearray(cache.num_pages)
        self._num_cold = cache.num_pages

    def idle(self) -> bool:
        """A piece of a few milliseconds; whether there is more."""
        page_io = self._page_io()
        # A device's memory is there from the start.
        if not self._num_cold or not isinstance(page_io, ArrayPageIo):
            return False
        until_ns = self._clock_ns() + PIECE_NS
        for page_id in self._cache.next_free(max(1, WARM_BYTES // page_io.page_bytes)):
            if self._clock_ns() >= until_ns:
                return True
            if not self._is_warm[page_id]:
                page_io.write([page_id], np.zeros((1, page_io.page_bytes), np.uint8))
                self._is_warm[page_id] = 1
                self._num_cold -= 1
        return False
