"""What a sequence takes from the prefix cache and leaves there: matches, shared pages, pins.

Owned by the scheduler. How much of a sequence may stay is up to its hints (runtime.messages).
"""

from collections.abc import Callable

from prefix_cache import Lease, PrefixCache
from runtime.messages import CacheHints
from runtime.request import Sequence

_NS = 1_000_000_000


class SequencePages:
    """`page_bytes` is what a quota is counted in; 0 = not known, and then there are no quotas."""

    def __init__(self, cache: PrefixCache, *, page_bytes: int, clock: Callable[[], int]) -> None:
        self._cache = cache
        self._page_bytes = page_bytes
        self._clock = clock

    def match(self, sequence: Sequence) -> Lease:
        """A lease on what is cached of the sequence, without any page of its own."""
        submit = sequence.request.submit
        if not submit.use_cache:
            return self._cache.acquire_none()
        self._cache.set_quota(submit.cache.owner, self._max_pages(submit.cache))
        return self._cache.acquire(
            submit.namespace,
            sequence.token_ids,
            max_tokens=sequence.num_matchable_tokens,
            owner=submit.cache.owner,
        )

    def computed(self, sequence: Sequence, start: int, end: int) -> None:
        """[start, end) is computed: frees the tail's source, shares pages that became full."""
        assert sequence.lease is not None
        if sequence.has_tail_copy:
            self._cache.release_tail(sequence.lease)
        page_size = self._cache.page_size
        if sequence.request.submit.use_cache and end // page_size > start // page_size:
            self._cache.publish(sequence.lease, sequence.token_ids[: sequence.num_kept(end)])

    def release(self, sequence: Sequence) -> None:
        """Gives all pages back; those that may stay are in the cache then, pinned where wished."""
        lease = sequence.lease
        assert lease is not None
        if sequence.has_tail_copy:
            # None of it has run since it was admitted: what was to be copied is not there.
            self._cache.release_tail(lease)
            sequence.num_computed_tokens = lease.num_shared_tokens
        token_ids = sequence.cacheable_ids()
        if token_ids is not None:
            self._pin(sequence, lease)
        self._cache.release(lease, token_ids)
        sequence.lease = None

    def _pin(self, sequence: Sequence, lease: Lease) -> None:
        """Its full pages are in the tree. All choices have the prompt of the first, whose pages are
        locked while it runs: a pin's time begins when it ends."""
        hints = sequence.request.submit.cache
        if sequence.choice or not hints.pins:
            return
        now_ns = self._clock()
        for pin in hints.pins:
            until_ns = now_ns + round(pin.ttl_s * _NS)
            self._cache.pin(lease, pin.num_tokens, until_ns=until_ns, key=hints.key)

    def _max_pages(self, hints: CacheHints) -> int | None:
        if hints.quota_bytes is None or not self._page_bytes:
            return None
        return hints.quota_bytes // self._page_bytes
