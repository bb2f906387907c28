"""Large buffers that are used again. A new one costs more than what is read into it: the kernel
gives its memory page by page (26 ms for 32 MB, measured on two cores of an EPYC).
"""

import weakref

import numpy as np
import numpy.typing as npt


class BufferPool:
    """Buffers come back by themselves, when the last view of them is gone. Called from any
    thread."""

    def __init__(self, *, buffer_bytes: int, max_idle: int) -> None:
        self._buffer_bytes = buffer_bytes
        self._max_idle = max_idle
        self._idle: list[npt.NDArray[np.uint8]] = []

    @property
    def num_idle(self) -> int:
        return len(self._idle)

    def warm(self, num_buffers: int) -> None:
        """Has memory for so many ready, as far as idle ones are kept."""
        for _ in range(min(num_buffers, self._max_idle - len(self._idle))):
            self._idle.append(np.full(self._buffer_bytes, 0xFF, np.uint8))

    def take(self, num_bytes: int) -> memoryview:
        """At least so large; what it holds is whatever was there."""
        whole = self._whole(num_bytes)
        # Not `whole` itself: its end is told while `whole` lives on.
        lent = whole.view()
        weakref.finalize(lent, self._take_back, whole).atexit = False
        return lent.data

    def _whole(self, num_bytes: int) -> npt.NDArray[np.uint8]:
        if num_bytes <= self._buffer_bytes:
            try:
                return self._idle.pop()
            except IndexError:  # all are in use, or another thread was faster
                pass
        return np.empty(max(num_bytes, self._buffer_bytes), np.uint8)

    def _take_back(self, whole: npt.NDArray[np.uint8]) -> None:
        if len(whole) == self._buffer_bytes and len(self._idle) < self._max_idle:
            self._idle.append(whole)
