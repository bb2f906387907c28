"""Arrays for pages on their way, used again: the system takes long to give new memory (on a virtual
machine 20 to 100 ms for the pages of a prompt of 1,400 tokens, as much as reading them).

The fetch thread takes them, the engine's loop gives them back.
"""

import numpy as np

from runtime.page_io import PageBytes

# Of free arrays no more than this is kept.
MAX_KEPT_BYTES = 64 * 1024 * 1024
# So much is taken from the system in advance.
WARM_BYTES = 32 * 1024 * 1024


class PageBuffers:
    """Arrays of `num_pages` pages."""

    def __init__(self, num_pages: int, page_bytes: int) -> None:
        self.num_pages = num_pages
        self._shape = (num_pages, page_bytes)
        self._max_kept = max(1, MAX_KEPT_BYTES // (num_pages * page_bytes))
        self._free: list[PageBytes] = []

    def take(self, num_pages: int) -> PageBytes:
        """[num_pages, page_bytes], of at most `self.num_pages` pages, with any content."""
        try:
            array = self._free.pop()
        except IndexError:
            array = np.empty(self._shape, np.uint8)
        return array[:num_pages]

    def give_back(self, pages: PageBytes) -> None:
        """What `take` gave; nobody reads it any more."""
        if len(self._free) < self._max_kept and isinstance(pages.base, np.ndarray):
            self._free.append(pages.base)

    def warm(self) -> None:
        """Has memory ready."""
        for _ in range(min(self._max_kept, WARM_BYTES // int(np.prod(self._shape)))):
            array = np.empty(self._shape, np.uint8)
            array[:] = 0
            self._free.append(array)
