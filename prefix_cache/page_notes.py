"""What lower tiers are told: which full pages entered the tree, under which identities, and which
left it. Only made where the cache has an identity root; bounded, as nobody may come for it.
"""

from array import array
from collections import deque
from dataclasses import dataclass

from prefix_cache.identity import packed_page_identity, tenant_root

_IDENTITY_BYTES = 32


@dataclass(frozen=True, slots=True)
class StoredNote:
    """A full page that entered the tree; it holds that while its generation is current.

    `tokens` are the page's, packed as big-endian unsigned 32-bit numbers.
    """

    page_id: int
    generation: int
    identity: bytes
    tokens: bytes
    namespace: bytes


class PageNotes:
    """Identity and generation of each page of the pool, and the notes that nobody has taken yet.

    A page's generation ends when it leaves the tree. Of more than `max_notes` of a kind the oldest
    are dropped, and counted in `num_dropped`.
    """

    def __init__(self, *, num_pages: int, identity_root: bytes, max_notes: int) -> None:
        self._identity_root = identity_root
        self._identities = bytearray(_IDENTITY_BYTES * num_pages)
        self._generations = array("Q", bytes(8 * num_pages))
        self._max_notes = max_notes
        self._stored: deque[StoredNote] = deque()
        self._removed: dict[bytes, None] = {}
        self.num_dropped = 0

    def root(self, namespace: bytes) -> bytes:
        return tenant_root(self._identity_root, namespace)

    def identity(self, page_id: int) -> bytes:
        """Of a full page in the tree."""
        start = page_id * _IDENTITY_BYTES
        return bytes(self._identities[start : start + _IDENTITY_BYTES])

    def enter(
        self, namespace: bytes, before: int | None, *, pages: list[bytes], page_ids: list[int]
    ) -> None:
        """Names full pages that follow page `before` (None: the root) and notes them as stored."""
        identity = self.root(namespace) if before is None else self.identity(before)
        for tokens, page_id in zip(pages, page_ids, strict=True):
            identity = packed_page_identity(identity, tokens)
            start = page_id * _IDENTITY_BYTES
            self._identities[start : start + _IDENTITY_BYTES] = identity
            self._removed.pop(identity, None)
            generation = self._generations[page_id]
            self._stored.append(StoredNote(page_id, generation, identity, tokens, namespace))
        while len(self._stored) > self._max_notes:
            self._stored.popleft()
            self.num_dropped += 1

    def leave(self, page_ids: list[int]) -> None:
        """Ends the generations of full pages and notes them as removed."""
        for page_id in page_ids:
            self._generations[page_id] += 1
            self._removed[self.identity(page_id)] = None
        while len(self._removed) > self._max_notes:
            del self._removed[next(iter(self._removed))]
            self.num_dropped += 1

    def is_current(self, page_id: int, generation: int) -> bool:
        return self._generations[page_id] == generation

    def take_stored(self) -> list[StoredNote]:
        taken, self._stored = list(self._stored), deque()
        return taken

    def take_removed(self) -> list[bytes]:
        """Without those that have entered the tree again meanwhile."""
        taken, self._removed = list(self._removed), {}
        return taken
