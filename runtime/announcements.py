"""Tells the directory that replicas share which pages are on this device, in batches.

Owned by WriteBehind, in the engine's thread; the store thread does the talking.
"""

import time
from collections.abc import Callable, Iterable

from prefix_cache import PrefixCache
from prefix_cache.page_notes import StoredNote
from runtime.tier_threads import TierSet

SEND_EVERY_NS = 500_000_000
# While the directory takes nothing, no more than this is remembered; entries end by themselves.
MAX_PENDING = 100_000


class Announcements:
    """The last that happened to a page is what is told of it."""

    def __init__(
        self,
        cache: PrefixCache,
        tiers: TierSet,
        *,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._cache = cache
        self._tiers = tiers
        self._clock_ns = clock_ns
        self._pending: dict[bytes, bool] = {}
        self._sent_ns = clock_ns()

    def note(self, stored: Iterable[StoredNote], removed: Iterable[bytes]) -> None:
        """What entered and what left the tree since the last call, each in any order."""
        self._pending.update(dict.fromkeys(removed, False))
        for note in stored:
            if self._cache.is_current(note.page_id, note.generation):
                self._pending[note.identity] = True
        while len(self._pending) > MAX_PENDING:
            del self._pending[next(iter(self._pending))]

    def send_due(self) -> None:
        """Sends what there is, if the last time was a while ago."""
        now_ns = self._clock_ns()
        if not self._pending or now_ns - self._sent_ns < SEND_EVERY_NS:
            return
        stored = [identity for identity, is_there in self._pending.items() if is_there]
        removed = [identity for identity, is_there in self._pending.items() if not is_there]
        if self._tiers.announce(stored, removed):
            self._pending, self._sent_ns = {}, now_ns
