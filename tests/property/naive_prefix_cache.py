"""The prefix cache as slowly and plainly as possible: a dict of pages, everything by scanning."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class NaivePage:
    """A cached page: all tokens from the start of its sequence to the page's last one."""

    namespace: bytes
    prefix: tuple[int, ...]
    last_used: int
    num_locks: int = 0


class NaiveCache:
    """Which pages are cached, who locks them, and which would be evicted next."""

    def __init__(self, page_size: int) -> None:
        self.page_size = page_size
        self.pages: dict[int, NaivePage] = {}
        self.clock = 0

    def match_len(self, namespace: bytes, tokens: Sequence[int]) -> int:
        """The longest common prefix with any cached page's sequence, token by token."""
        return max(
            (
                common_len(page.prefix, tokens)
                for page in self.pages.values()
                if page.namespace == namespace
            ),
            default=0,
        )

    def find(self, namespace: bytes, prefix: Sequence[int]) -> int | None:
        """The cached page that ends exactly where `prefix` does."""
        for page_id, page in self.pages.items():
            if page.namespace == namespace and page.prefix == tuple(prefix):
                return page_id
        return None

    def path(self, page_id: int) -> list[int]:
        """The page and all pages before it."""
        page = self.pages[page_id]
        starts = range(self.page_size, len(page.prefix), self.page_size)
        before = [self.find(page.namespace, page.prefix[:end]) for end in starts]
        assert None not in before, "a page was cached without the one before it"
        return [found for found in before if found is not None] + [page_id]

    def tick(self) -> None:
        self.clock += 1

    def lock(self, page_ids: Sequence[int]) -> None:
        for page_id in page_ids:
            self.pages[page_id].num_locks += 1
            self.pages[page_id].last_used = self.clock

    def unlock(self, page_ids: Sequence[int]) -> None:
        self.tick()
        for page_id in page_ids:
            self.pages[page_id].num_locks -= 1
            self.pages[page_id].last_used = self.clock
            assert self.pages[page_id].num_locks >= 0
        self._drop_superseded()

    def insert(self, page_id: int, namespace: bytes, prefix: Sequence[int]) -> int:
        """Caches the page unless its tokens are cached already; returns the page that has them."""
        found = self.find(namespace, prefix)
        if found is None:
            self.pages[page_id] = NaivePage(namespace, tuple(prefix), self.clock)
        self._drop_superseded()
        return page_id if found is None else found

    def evict(self) -> int:
        """Takes out the least recently used unlocked page that no other page continues."""
        candidates = {
            page_id: page.last_used
            for page_id, page in self.pages.items()
            if page.num_locks == 0 and not self._has_next(page)
        }
        oldest = min(candidates.values())
        [victim] = [page_id for page_id in candidates if candidates[page_id] == oldest]
        del self.pages[victim]
        return victim

    @property
    def num_locked(self) -> int:
        return sum(page.num_locks > 0 for page in self.pages.values())

    def _has_next(self, page: NaivePage) -> bool:
        end = len(page.prefix)
        return end % self.page_size == 0 and any(
            other.namespace == page.namespace and other.prefix[:end] == page.prefix
            for other in self.pages.values()
            if other is not page
        )

    def _drop_superseded(self) -> None:
        """Drops unlocked partial pages whose tokens are the beginning of another page's."""
        for page_id, page in list(self.pages.items()):
            end = len(page.prefix)
            if end % self.page_size and not page.num_locks:
                others = [p for p in self.pages.values() if p.namespace == page.namespace]
                if sum(other.prefix[:end] == page.prefix for other in others) > 1:
                    del self.pages[page_id]


def common_len(left: Sequence[int], right: Sequence[int]) -> int:
    count = 0
    while count < min(len(left), len(right)) and left[count] == right[count]:
        count += 1
    return count
