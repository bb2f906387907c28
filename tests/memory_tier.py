"""A tier in this process's memory, slow, damaged or down as a test wants it."""

import threading
from collections.abc import Sequence

from prefix_cache.tiers.tier import PageKey, StoredPage, TierCounts, TierLabel

WAIT_S = 10.0


class MemoryTier:
    """Implements PageTier. While `is_held`, lookups and fetches wait for release()."""

    def __init__(self, label: TierLabel = "disk") -> None:
        self.label: TierLabel = label
        self.is_up = True
        self.counts = TierCounts()
        self.max_bytes: int | None = None
        self.pages: dict[bytes, tuple[bytes, bytes]] = {}
        self.calls: list[tuple[str, int]] = []
        self.touched: list[bytes] = []
        self.is_closed = False
        self._released = threading.Event()
        self._released.set()

    @property
    def num_pages(self) -> int:
        return len(self.pages)

    @property
    def num_bytes(self) -> int:
        return sum(len(payload) for _, payload in self.pages.values())

    def hold(self) -> None:
        self._released.clear()

    def release(self) -> None:
        self._released.set()

    def count_leading(self, keys: Sequence[PageKey]) -> int:
        self.calls.append(("count", len(keys)))
        self._wait()
        return len(self._leading(keys))

    def fetch(self, keys: Sequence[PageKey]) -> list[bytes | memoryview]:
        self.calls.append(("fetch", len(keys)))
        self._wait()
        payloads = self._leading(keys)
        self.counts.num_fetched += len(payloads)
        return payloads

    def store(self, pages: Sequence[StoredPage]) -> None:
        self.calls.append(("store", len(pages)))
        for page in pages:
            self.pages[page.key.identity] = (page.key.tokens, bytes(page.payload))
        self.counts.num_stored += len(pages)

    def touch(self, identities: Sequence[bytes]) -> None:
        self.calls.append(("touch", len(identities)))
        self.touched += identities

    def forget(self, identities: Sequence[bytes] | None) -> None:
        for identity in list(self.pages) if identities is None else identities:
            self.pages.pop(identity, None)

    def close(self) -> None:
        self.is_closed = True

    def num_calls(self, name: str) -> int:
        return sum(called == name for called, _ in self.calls)

    def _leading(self, keys: Sequence[PageKey]) -> list[bytes | memoryview]:
        found: list[bytes | memoryview] = []
        for key in keys:
            tokens, payload = self.pages.get(key.identity, (b"", b""))
            if tokens != key.tokens:
                break
            found.append(payload)
        return found

    def _wait(self) -> None:
        assert self._released.wait(WAIT_S), "a held tier was never released"
