"""Has the system give memory for the first pages of the pool before somebody waits for them.

The pool is taken from the system as it is first written to, so that an idle server is small. On a
virtual machine that takes 20 us for 4 KiB: half of the time in which a prefix of 1,400 tokens comes
back after a restart. Owned by LowerTiers, in the engine's thread; done in idle time, once.
"""

import time
from collections.abc import Callable

import numpy as np

from prefix_cache import Lease, PrefixCache
from runtime.page_io import ArrayPageIo, PageIo

# The pages of a prompt of 1,400 tokens of a small model.
WARM_BYTES = 32 * 1024 * 1024
PIECE_NS = 5_000_000


class WarmUp:
    """Writes to free pages only, which it holds until it is done or work comes."""

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
        self._lease: Lease | None = None
        self.is_over = False

    def idle(self) -> bool:
        """A piece of a few milliseconds; whether there is more."""
        page_io = self._page_io()
        if self.is_over or page_io is None:
            return False
        if not isinstance(page_io, ArrayPageIo):  # a device's memory is there from the start
            self.stop()
            return False
        until_ns = self._clock_ns() + PIECE_NS
        while not self.is_over and self._clock_ns() < until_ns:
            self._touch_page(page_io)
        return not self.is_over

    def stop(self) -> None:
        """Gives the pages back, which are the first to be taken then."""
        self.is_over = True
        if self._lease is not None:
            self._cache.release(self._lease, None)
            self._lease = None

    def _touch_page(self, page_io: ArrayPageIo) -> None:
        lease = self._lease = self._lease or self._cache.acquire_none()
        has_enough = len(lease.page_ids) * page_io.page_bytes >= WARM_BYTES
        if has_enough or self._cache.counts().free == 0:
            self.stop()
            return
        page_ids = self._cache.extend(lease, 1)
        page_io.write(page_ids, np.zeros((1, page_io.page_bytes), np.uint8))
