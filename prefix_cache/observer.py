"""Who is told what leaves the tree. Called from the cache's thread; must not call the cache."""

from typing import Literal, Protocol

# What pages were given up for, as runtime.cache_messages names it.
Cause = Literal["own_request", "other_tenant", "quota", "flush"]


class CacheObserver(Protocol):
    """Told once for each run of pages that is evicted."""

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
        """`num_pages` pages are gone, the first of which held `first_page` (packed tokens).

        `parent_key` names all tokens before it (`prefix_cache.page_keys.page_key`). It is a hash of
        this process, not compared with tokens: enough to explain a miss, never to reuse a page.
        """
