"""The radix tree over token ids and the pages it owns. Plain Python over ints, no torch."""

from prefix_cache.cache import PrefixCache
from prefix_cache.errors import LeaseEnded, OutOfPages, PrefixCacheError
from prefix_cache.identity import (
    KvLayout,
    page_identities,
    page_identity,
    tenant_root,
    tenant_salt,
)
from prefix_cache.lease import Lease, PageCounts, TailMatch
from prefix_cache.observer import CacheObserver
from prefix_cache.page_notes import StoredNote

__all__ = [
    "CacheObserver",
    "KvLayout",
    "Lease",
    "LeaseEnded",
    "OutOfPages",
    "PageCounts",
    "PrefixCache",
    "PrefixCacheError",
    "StoredNote",
    "TailMatch",
    "page_identities",
    "page_identity",
    "tenant_root",
    "tenant_salt",
]
