"""The prefix cache as slowly and plainly as possible: a dict of pages, everything by scanning."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(eq=False)
class NaivePin:
    """Covers the full pages of a sequence of whole pages."""

    namespace: bytes
    prefix: tuple[int, ...]
    until_ns: int
    key: str
    source: object


@dataclass
class NaivePage:
    """A cached page: all tokens from the start of its sequence to the page's last one."""

    namespace: bytes
    prefix: tuple[int, ...]
    last_used: int
    num_locks: int = 0


class NaiveCache:
    """Which pages are cached, who locks them, and which would be evicted next."""

    def __init__(
        self, page_size: int, *, num_pages: int, pin_share: float, owners: dict[bytes, str]
    ) -> None:
        self.page_size = page_size
        self.num_pages = num_pages
        self.pin_share = pin_share
        self.owners = owners
        self.pages: dict[int, NaivePage] = {}
        self.pins: list[NaivePin] = []
        self.quotas: dict[str, int] = {}
        self.clock = 0
        self.num_over_quota_evicted = 0

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

    def evict(self, owner: str | None = None) -> int | None:
        """Takes out, of the unlocked pages that no other page continues (of one owner's where one
        is given), the least recently used without a pin, or else with one; None if there is none.
        """
        candidates = {
            page_id: (self.is_pinned(page), page.last_used)
            for page_id, page in self.pages.items()
            if page.num_locks == 0
            and not self._has_next(page)
            and owner in (None, self.owners[page.namespace])
        }
        if not candidates:
            return None
        first = min(candidates.values())
        [victim] = [page_id for page_id in candidates if candidates[page_id] == first]
        self.remove(victim)
        return victim

    def remove(self, page_id: int) -> None:
        """Pins that ended with the page end with the one before it, or are no more."""
        page = self.pages.pop(page_id)
        for pin in self.pins:
            if (pin.namespace, pin.prefix) == (page.namespace, page.prefix):
                pin.prefix = pin.prefix[: -self.page_size]
        self.pins = [pin for pin in self.pins if pin.prefix]

    def flush(self, owner: str | None) -> int:
        before = len(self.pages)
        while self.evict(owner) is not None:
            pass
        return before - len(self.pages)

    # Owners

    def set_quota(self, owner: str, max_pages: int | None) -> None:
        self.quotas.pop(owner, None)
        if max_pages is not None:
            self.quotas[owner] = max_pages
        self._trim_pins(owner)
        self.keep_quota(owner)

    def keep_quota(self, owner: str) -> None:
        while self.num_pages_of(owner) > self.quotas.get(owner, self.num_pages):
            if self.evict(owner) is None:
                return
            self.num_over_quota_evicted += 1

    def num_pages_of(self, owner: str) -> int:
        return sum(self.owners[page.namespace] == owner for page in self.pages.values())

    # Pins

    def pin(self, pin: NaivePin) -> int:
        """Cuts the pin to what its owner may have; returns how many pages are pinned."""
        owner = self.owners[pin.namespace]
        pin.prefix = pin.prefix[: self.max_pinned(owner) * self.page_size]
        if not pin.prefix:
            return 0
        own = [one for one in self.pins if self.owners[one.namespace] == owner]
        if pin.key:
            older = [one for one in own if one.key == pin.key and one.source is not pin.source]
        else:
            place = (pin.namespace, pin.prefix)
            older = [one for one in own if not one.key and (one.namespace, one.prefix) == place]
            pin.until_ns = max([pin.until_ns, *(one.until_ns for one in older)])
        self.pins = [one for one in self.pins if one not in older] + [pin]
        self._trim_pins(owner)
        return len(pin.prefix) // self.page_size if pin in self.pins else 0

    def expire(self, now_ns: int) -> None:
        self.pins = [pin for pin in self.pins if pin.until_ns > now_ns]

    def is_pinned(self, page: NaivePage) -> bool:
        end = len(page.prefix)
        return end % self.page_size == 0 and any(
            pin.namespace == page.namespace and pin.prefix[:end] == page.prefix for pin in self.pins
        )

    def num_pinned_of(self, owner: str | None = None) -> int:
        return sum(
            self.is_pinned(page)
            for page in self.pages.values()
            if owner in (None, self.owners[page.namespace])
        )

    def max_pinned(self, owner: str) -> int:
        total = min(self.num_pages, self.quotas.get(owner, self.num_pages))
        return int(self.pin_share * total)

    def _trim_pins(self, owner: str) -> None:
        """Over the bound what expires first goes; of equal ones what was pinned first."""
        while self.num_pinned_of(owner) > self.max_pinned(owner):
            own = [pin for pin in self.pins if self.owners[pin.namespace] == owner]
            self.pins.remove(min(own, key=lambda pin: pin.until_ns))

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
