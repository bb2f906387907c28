"""A cache with all that its questions are answered from, served as an engine would."""

from collections.abc import Sequence

from prefix_cache import OutOfPages, PrefixCache
from prefix_cache.evicted_log import EvictedLog
from prefix_cache.explain import CacheExplainer, Explanation

SALT = b"namespace"
OWNER = "owner"


class CacheBench:
    """Pages of 4 tokens. The clock advances by a second at each eviction that is noted."""

    def __init__(self, num_pages: int = 64) -> None:
        self.now_ns = 0
        self.log = EvictedLog(clock_ns=self._tick)
        self.cache = PrefixCache(num_pages=num_pages, page_size=4, observer=self.log)
        self.explainer = CacheExplainer(self.cache, self.log)

    def serve(
        self, token_ids: Sequence[int], *, namespace: bytes = SALT, owner: str = OWNER
    ) -> int:
        """A request from its admission to its end; returns how many tokens were cached. Raises
        OutOfPages where the pool is too small for it."""
        lease = self.cache.acquire(namespace, token_ids, max_tokens=len(token_ids) - 1, owner=owner)
        num_cached = lease.num_cached_tokens
        try:
            self.cache.extend(lease, -(-len(token_ids) // 4) - len(lease.page_ids))
        except OutOfPages:
            self.cache.release(lease, None)
            raise
        self.cache.release_tail(lease)
        self.cache.release(lease, token_ids)
        return num_cached

    def explain(
        self,
        token_ids: Sequence[int],
        *,
        namespace: bytes = SALT,
        owner: str = OWNER,
        sees_all: bool = False,
    ) -> Explanation:
        return self.explainer.explain(namespace, token_ids, owner=owner, sees_all=sees_all)

    def reason_at_admission(
        self, token_ids: Sequence[int], *, namespace: bytes = SALT, owner: str = OWNER
    ) -> str | None:
        """What a trace says of a request that is admitted now, and comes to nothing."""
        lease = self.cache.acquire(namespace, token_ids, max_tokens=len(token_ids) - 1, owner=owner)
        reason = self.explainer.reason_of(lease, token_ids)
        self.cache.release(lease, None)
        return reason

    def _tick(self) -> int:
        self.now_ns += 1_000_000_000
        return self.now_ns
