"""A cache with pages of 4 tokens and a clock that a test sets, and requests from begin to end."""

from collections.abc import Sequence

from prefix_cache import PrefixCache
from prefix_cache.observer import CacheObserver, Cause


class Clock:
    """Nanoseconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now_ns = 1_000

    def __call__(self) -> int:
        return self.now_ns


def make_cache(
    num_pages: int = 16,
    *,
    pin_share: float = 1.0,
    clock: Clock | None = None,
    identity_root: bytes | None = None,
    observer: CacheObserver | None = None,
) -> PrefixCache:
    return PrefixCache(
        num_pages=num_pages,
        page_size=4,
        pin_share=pin_share,
        clock_ns=clock or Clock(),
        identity_root=identity_root,
        observer=observer,
    )


def remember(
    cache: PrefixCache,
    tokens: Sequence[int],
    *,
    owner: str = "ada",
    pin_len: int = 0,
    until_ns: int = 2_000,
    key: str = "",
) -> int:
    """Runs a request of the owner, whose namespace is its name; the first `pin_len` tokens are
    pinned where that is not 0. Returns how many pages are."""
    lease = cache.acquire(owner.encode(), tokens, max_tokens=len(tokens) - 1, owner=owner)
    cache.extend(lease, -(-len(tokens) // 4) - len(lease.page_ids))
    cache.release_tail(lease)
    cache.publish(lease, tokens)
    num_pinned = 0
    if pin_len:
        num_pinned = cache.pin(lease, pin_len, until_ns=until_ns, key=key)
    cache.check_invariants()
    cache.release(lease, tokens)
    cache.check_invariants()
    return num_pinned


def need(cache: PrefixCache, num_pages: int, *, owner: str = "") -> None:
    """A request that takes pages and leaves nothing."""
    lease = cache.acquire_none(owner)
    cache.extend(lease, num_pages)
    cache.check_invariants()
    cache.release(lease, None)


def found(cache: PrefixCache, tokens: Sequence[int], *, owner: str = "ada") -> int:
    return cache.peek(owner.encode(), tokens)


class Evictions:
    """An observer that remembers what it was told."""

    def __init__(self) -> None:
        self.runs: list[tuple[bytes, int, bytes, int]] = []
        self.causes: list[tuple[Cause, str]] = []

    def evicted(
        self,
        namespace: bytes,
        parent_key: int,
        *,
        first_page: bytes,
        num_pages: int,
        cause: Cause,
        for_owner: str,
    ) -> None:
        self.runs.append((namespace, parent_key, first_page, num_pages))
        self.causes.append((cause, for_owner))
