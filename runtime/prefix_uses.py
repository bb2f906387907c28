"""Tells the lower tiers which prefixes the device's own pages have served: their copies below would
else go as those that nobody uses, and the next start or the next replica would miss them.

Owned by LowerTiers, in the engine's thread.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

from runtime.tier_fetch import Fetch
from runtime.tier_threads import TierSet

# A tier notes a use at most so often; of so many prefixes it is known when they were last told.
INTERVAL_NS = 60 * 10**9
MAX_PREFIXES = 4096


class PrefixUses:
    """Each prefix is told at most once a minute."""

    def __init__(
        self,
        tiers: TierSet,
        *,
        page_size: int,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._tiers = tiers
        self._page_size = page_size
        self._clock_ns = clock_ns
        self._told_ns: OrderedDict[int, int] = OrderedDict()

    def note(self, namespace: bytes, token_ids: Sequence[int], *, num_cached_tokens: int) -> None:
        """A request began with so many tokens that were cached."""
        num_pages = num_cached_tokens // self._page_size
        prefix = tuple(token_ids[: num_pages * self._page_size])
        if not prefix or not self._is_due(hash((namespace, prefix))):
            return
        self._tiers.touch(
            Fetch(
                namespace=namespace,
                owner="",
                token_ids=prefix,
                start_page=0,
                end_page=num_pages,
                page_size=self._page_size,
                prefill=None,
            )
        )

    def _is_due(self, prefix: int) -> bool:
        now_ns = self._clock_ns()
        told_ns = self._told_ns.get(prefix)
        if told_ns is not None and now_ns - told_ns < INTERVAL_NS:
            return False
        self._told_ns[prefix] = now_ns
        self._told_ns.move_to_end(prefix)
        if len(self._told_ns) > MAX_PREFIXES:
            self._told_ns.popitem(last=False)
        return True
