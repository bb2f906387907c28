"""Copies pages that entered the tree to the lower tiers: while the loop is idle, and between steps
within a small part of their time.

A page that was given up before its turn is lost for the tiers, and counted. Owned by LowerTiers, in
the engine's thread.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Sequence

from prefix_cache import PrefixCache
from prefix_cache.page_notes import StoredNote
from prefix_cache.tiers.tier import PageKey
from runtime.announcements import Announcements
from runtime.page_io import PageIo
from runtime.tier_threads import TierSet

# Of the time that steps take, copies between two of them may take so much.
STEP_SHARE = 0.02
# An idle loop copies for so long before it looks at its socket again.
IDLE_PIECE_NS = 5_000_000
# What steps have earned and nobody has used does not add up to a pause.
MAX_CREDIT_NS = 2_000_000
MAX_BATCH = 16
# Notes that wait: the tree has rarely more pages, and a note takes some 300 bytes.
MAX_BACKLOG = 65_536
# Before the first copy, what one page is believed to take.
_FIRST_PAGE_NS = 100_000.0
_WEIGHT = 0.2


class WriteBehind:
    """`page_io` is asked at each copy: an executor may have none yet."""

    def __init__(
        self,
        cache: PrefixCache,
        tiers: TierSet,
        *,
        page_io: Callable[[], PageIo | None],
        clock_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._cache = cache
        self._tiers = tiers
        self._page_io = page_io
        self._clock_ns = clock_ns
        self._announcements = Announcements(cache, tiers) if tiers.has_directory else None
        self._backlog: deque[StoredNote] = deque()
        self._page_ns = _FIRST_PAGE_NS
        self._credit_ns = 0.0

    @property
    def num_waiting(self) -> int:
        """Pages."""
        return len(self._backlog)

    def take_notes(self, *, restored: Collection[bytes] = ()) -> None:
        """Fetches what has entered the tree; `restored` pages are in a tier already."""
        notes = self._cache.take_stored()
        if self._announcements is not None:
            self._announcements.note(notes, self._cache.take_removed())
            self._announcements.send_due()
        if not notes:
            return
        known = frozenset(restored)
        self._backlog += [note for note in notes if note.identity not in known]
        num_over = len(self._backlog) - MAX_BACKLOG
        for _ in range(num_over):
            self._backlog.popleft()
        self._tiers.note_dropped("backlog", max(0, num_over))

    def after_step(self, elapsed_ns: int) -> None:
        """A step took so long: some copies may follow."""
        self._credit_ns = min(self._credit_ns + STEP_SHARE * elapsed_ns, MAX_CREDIT_NS)

    def between_steps(self) -> None:
        """As many copies as the steps before have earned; their tokens are sent already."""
        self.take_notes()
        if self._backlog and self._credit_ns >= self._page_ns:
            self._credit_ns -= self._copy_for(self._credit_ns)

    def idle(self) -> bool:
        """One piece of work; whether there is more that can be done now."""
        self.take_notes()
        self._copy_for(IDLE_PIECE_NS)
        return bool(self._backlog) and self._has_room()

    def wait_for_room(self, timeout_s: float) -> bool:
        """Waits until the store thread can take a page; False where that would not help."""
        page_io = self._page_io()
        if page_io is None:
            return False
        self._tiers.wait_for_room(page_io.page_bytes, timeout_s=timeout_s)
        return True

    def note_removed(self, identities: Sequence[bytes]) -> None:
        """Pages left the tree that nobody will hear of otherwise."""
        if self._announcements is not None:
            self._announcements.note((), identities)

    def forget(self) -> None:
        """What has been taken out of the tree on purpose is no loss."""
        self.take_notes()
        current = [n for n in self._backlog if self._cache.is_current(n.page_id, n.generation)]
        self._backlog = deque(current)

    def _has_room(self) -> bool:
        page_io = self._page_io()
        return page_io is not None and self._tiers.num_free_store_bytes >= page_io.page_bytes

    def _copy_for(self, budget_ns: float) -> int:
        """Batch by batch while the next is expected to fit; returns how long it took."""
        start_ns = self._clock_ns()
        left_ns = budget_ns
        while self._backlog and left_ns >= self._page_ns:
            if not self._copy(max_pages=min(MAX_BATCH, int(left_ns / self._page_ns))):
                break
            left_ns = budget_ns - (self._clock_ns() - start_ns)
        return self._clock_ns() - start_ns

    def _copy(self, *, max_pages: int) -> bool:
        """False where nothing can be copied now."""
        page_io = self._page_io()
        if page_io is None:
            self._tiers.note_dropped("not_ready", len(self._backlog))
            self._backlog.clear()
            return False
        num_fitting = self._tiers.num_free_store_bytes // page_io.page_bytes
        notes = self._next_notes(page_io, min(max_pages, num_fitting))
        if not notes:
            return bool(self._backlog) and num_fitting > 0
        start_ns = self._clock_ns()
        pages = page_io.read([note.page_id for note in notes])
        self._page_ns += _WEIGHT * ((self._clock_ns() - start_ns) / len(notes) - self._page_ns)
        keys = [PageKey(note.identity, note.tokens) for note in notes]
        if not self._tiers.store(keys, pages):
            self._tiers.note_dropped("busy", len(notes))
        return True

    def _next_notes(self, page_io: PageIo, max_notes: int) -> list[StoredNote]:
        """Those of pages that still hold what they held; the others are counted."""
        notes: list[StoredNote] = []
        num_looked_at = 0
        dropped = {"evicted": 0, "foreign": 0}
        while self._backlog and len(notes) < max_notes and num_looked_at < 8 * MAX_BATCH:
            note = self._backlog.popleft()
            num_looked_at += 1
            if not self._cache.is_current(note.page_id, note.generation):
                dropped["evicted"] += 1
            elif note.page_id in page_io.foreign_pages:
                dropped["foreign"] += 1
            else:
                notes.append(note)
        for reason, num_pages in dropped.items():
            self._tiers.note_dropped(reason, num_pages)
        return notes
