"""Pages in host memory, for a device whose own memory has no room for them. Ends with the process.

Called from the tier threads, several at once.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from prefix_cache.tiers.tier import PageKey, StoredPage, TierCounts, TierLabel

# What an entry takes beyond its bytes: dictionary slot and node, the object, headers of three byte
# strings, room in the table: 250 to 350 by tracemalloc, CPython 3.11.
ENTRY_BYTES = 400


@dataclass(frozen=True, slots=True)
class _Entry:
    tokens: bytes
    payload: bytes

    @property
    def num_bytes(self) -> int:
        return ENTRY_BYTES + len(self.tokens) + len(self.payload)


class HostTier:
    """A PageTier bounded to `max_bytes`, all that an entry takes counted in; least recently used
    pages go first, and of pages that were used together those nearer to the end of a sequence."""

    def __init__(self, *, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self._num_bytes = 0
        self._counts = TierCounts()
        self._lock = threading.Lock()

    @property
    def label(self) -> TierLabel:
        return "host"

    @property
    def is_up(self) -> bool:
        return True

    @property
    def counts(self) -> TierCounts:
        return self._counts

    @property
    def num_pages(self) -> int:
        return len(self._entries)

    @property
    def num_bytes(self) -> int:
        return self._num_bytes

    @property
    def max_bytes(self) -> int | None:
        return self._max_bytes

    def count_leading(self, keys: Sequence[PageKey]) -> int:
        with self._lock:
            count = sum(1 for _ in takewhile(lambda key: key.identity in self._entries, keys))
            self._counts.num_found += count
            self._counts.num_missing += len(keys) - count
            return count

    def fetch(self, keys: Sequence[PageKey]) -> list[bytes | memoryview]:
        """Payloads are not copied: bytes objects cannot change."""
        with self._lock:
            payloads = self._leading_payloads(keys)
            self._touch([key.identity for key in keys[: len(payloads)]])
            self._counts.num_fetched += len(payloads)
            self._counts.fetched_bytes += sum(len(payload) for payload in payloads)
            return payloads

    def store(self, pages: Sequence[StoredPage]) -> None:
        with self._lock:
            # The first last, as the most recent: those behind it are nothing without it.
            for page in reversed(pages):
                self._store(page)

    def touch(self, identities: Sequence[bytes]) -> None:
        """These were used, wherever they were read from: pages of a sequence, the first first."""
        with self._lock:
            self._touch(identities)

    def forget(self, identities: Sequence[bytes] | None) -> None:
        with self._lock:
            for identity in list(self._entries) if identities is None else identities:
                self._remove(identity)

    def close(self) -> None:
        self.forget(None)

    def _leading_payloads(self, keys: Sequence[PageKey]) -> list[bytes | memoryview]:
        payloads: list[bytes | memoryview] = []
        for key in keys:
            entry = self._entries.get(key.identity)
            if entry is None:
                break
            if entry.tokens != key.tokens:
                self._counts.reject("tokens")
                break
            payloads.append(entry.payload)
        return payloads

    def _store(self, page: StoredPage) -> None:
        key = page.key
        if key.identity in self._entries:
            self._entries.move_to_end(key.identity)
            return
        num_bytes = ENTRY_BYTES + len(key.tokens) + memoryview(page.payload).nbytes
        if num_bytes > self._max_bytes:
            self._counts.drop("too_large")
            return
        while self._num_bytes + num_bytes > self._max_bytes:
            self._remove(next(iter(self._entries)))
        self._entries[bytes(key.identity)] = _Entry(bytes(key.tokens), bytes(page.payload))
        self._num_bytes += num_bytes
        self._counts.num_stored += 1
        self._counts.stored_bytes += memoryview(page.payload).nbytes

    def _touch(self, identities: Sequence[bytes]) -> None:
        for identity in reversed(identities):
            if identity in self._entries:
                self._entries.move_to_end(identity)

    def _remove(self, identity: bytes) -> None:
        entry = self._entries.pop(identity, None)
        if entry is not None:
            self._num_bytes -= entry.num_bytes
