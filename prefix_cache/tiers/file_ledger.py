"""Which files of pages there are, how large they are, and in which order they go. No I/O.

One DiskTier's view of a folder that others may change: what it says is checked against the disk
before a file goes.
"""

import heapq
from collections.abc import Iterable

from prefix_cache.tiers.page_folder import FoundFile


class FileLedger:
    """Abandoned roots' files go first, the least recently used of each kind before the others."""

    def __init__(self, files: Iterable[FoundFile] = (), *, own_folder: str) -> None:
        self._prefix = own_folder + "/"
        self._files: dict[str, FoundFile] = {}
        # One item a file, or more: those that say other than `_files` are passed over.
        self._order: list[tuple[bool, int, str]] = []
        self._num_own = 0
        self._num_bytes = 0
        for file in files:
            self._enter(file)
            self._order.append(_rank(file))
        heapq.heapify(self._order)

    @property
    def num_bytes(self) -> int:
        """Of all files."""
        return self._num_bytes

    @property
    def num_own(self) -> int:
        """Pages of this root."""
        return self._num_own

    def get(self, name: str) -> FoundFile | None:
        return self._files.get(name)

    def add(self, file: FoundFile) -> None:
        """In the place of what was known of that name."""
        self._enter(file)
        heapq.heappush(self._order, _rank(file))

    def touch(self, name: str, *, used_ns: int) -> None:
        """Nothing where the name is not known, or was used later."""
        file = self._files.get(name)
        if file is not None and file.used_ns < used_ns:
            self._files[name] = FoundFile(name, file.num_bytes, used_ns, file.is_abandoned)

    def remove(self, name: str) -> None:
        file = self._files.pop(name, None)
        if file is not None:
            self._num_bytes -= file.num_bytes
            self._num_own -= name.startswith(self._prefix)

    def remove_own(self) -> list[str]:
        """The names of all pages of this root, which are known no longer."""
        names = [name for name in self._files if name.startswith(self._prefix)]
        for name in names:
            self.remove(name)
        return names

    def next_out(self) -> FoundFile | None:
        """Which file goes first; it stays known."""
        while self._order:
            _, _, name = rank = self._order[0]
            file = self._files.get(name)
            if file is None:
                heapq.heappop(self._order)
            elif _rank(file) != rank:
                heapq.heapreplace(self._order, _rank(file))
            else:
                return file
        return None

    def _enter(self, file: FoundFile) -> None:
        self.remove(file.name)
        self._files[file.name] = file
        self._num_bytes += file.num_bytes
        self._num_own += file.name.startswith(self._prefix)


def _rank(file: FoundFile) -> tuple[bool, int, str]:
    return not file.is_abandoned, file.used_ns, file.name
