"""What the tree tells of pages that enter and leave it: to lower tiers, and to who explains misses.

Only full pages follow each other under a name; a partial page that leaves is told of all the same.
"""

from prefix_cache.observer import CacheObserver, Cause
from prefix_cache.packed_tokens import TOKEN_BYTES
from prefix_cache.page_keys import PageKeys
from prefix_cache.page_notes import PageNotes


class PageLedger:
    """Passes on what happens; keeps the names that this takes. Both receivers may be absent."""

    def __init__(
        self,
        *,
        page_size: int,
        num_pages: int,
        notes: PageNotes | None,
        observer: CacheObserver | None,
    ) -> None:
        self._page_bytes = page_size * TOKEN_BYTES
        self._notes = notes
        self._observer = observer
        self._keys = PageKeys(num_pages) if observer is not None else None

    def entered(
        self, namespace: bytes, before: int | None, *, tokens: bytes, page_ids: list[int]
    ) -> None:
        """Full pages follow page `before` from now on (None: the root)."""
        if self._keys is None and self._notes is None:
            return
        size = self._page_bytes
        pages = [tokens[start : start + size] for start in range(0, len(tokens), size)]
        if self._keys is not None:
            self._keys.enter(namespace, before, pages=pages, page_ids=page_ids)
        if self._notes is not None:
            self._notes.enter(namespace, before, pages=pages, page_ids=page_ids)

    def evicted(
        self,
        namespace: bytes,
        before: int | None,
        *,
        first_page: bytes,
        page_ids: list[int],
        cause: Cause,
        for_owner: str,
    ) -> None:
        """The run that begins behind page `before` is about to be given up."""
        if self._observer is not None and self._keys is not None:
            self._observer.evicted(
                namespace,
                self._keys.behind(namespace, before),
                first_page=first_page,
                num_pages=len(page_ids),
                cause=cause,
                for_owner=for_owner,
            )
        if self._notes is not None and len(first_page) == self._page_bytes:
            self._notes.leave(page_ids)
