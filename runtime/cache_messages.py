"""What a gateway may ask a runtime about its prefix cache, and the answers: plain data.

Nothing of one owner is told to another: a question names whose pages it is about, and only who is
trusted with all of them (the gateway decides) leaves the owner open. Times are wall-clock ns.
"""

from typing import Literal

import msgspec

TierName = Literal["device", "host", "disk", "redis"]

# Why no more of a prompt was found than was. `grows`: what is cached ends here, and the prompt goes
# on. `differs`: a cached sequence goes on with other tokens. `other_tenant` is told to nobody but
# who may see all tenants.
MissReason = Literal[
    "grows", "differs", "never_seen", "evicted", "other_salt", "other_tenant", "model_changed"
]
# What pages were given up for.
EvictionCause = Literal["own_request", "other_tenant", "quota", "flush"]


class ExplainCache(msgspec.Struct, frozen=True, tag=True):
    """How much of a prompt is cached, and why not more. Changes nothing, not even what is evicted
    next. `sees_all`: other owners' namespaces may be looked at to find a reason."""

    request_id: str
    prompt_token_ids: list[int]
    namespace: bytes
    owner: str
    sees_all: bool = False


class DescribeCache(msgspec.Struct, frozen=True, tag=True):
    """Sizes, hit rates and the tree of one owner; None = of all, then without any token ids."""

    request_id: str
    owner: str | None
    max_nodes: int = 500
    num_hottest: int = 10


class FlushCache(msgspec.Struct, frozen=True, tag=True):
    """Forgets every page that no running request uses, of one owner (None = of all), in the tree;
    with `tiers` also what lower tiers hold of them."""

    request_id: str
    owner: str | None = None
    tiers: bool = True


CacheQuery = ExplainCache | DescribeCache | FlushCache


class CacheExplanation(msgspec.Struct, frozen=True, tag=True):
    """`matched_tokens` are in the tree (the device tier), `tier_tokens` are those right behind them
    that lower tiers hold. `reason` None = everything that can match does. `cached_ids` is how the
    nearest cached sequence goes on from token `matched_tokens` on, a few tokens of it."""

    request_id: str
    num_tokens: int
    matched_tokens: int
    tier_tokens: dict[TierName, int] = {}
    reason: MissReason | None = None
    cached_ids: list[int] = []
    evicted_at_ns: int | None = None
    evicted_for: EvictionCause | None = None


class HitWindow(msgspec.Struct, frozen=True):
    """Prompt tokens of requests that began within the last `window_s` (None = since the start), and
    those of them found in the cache."""

    window_s: int | None
    num_requests: int
    prompt_tokens: int
    cached_tokens: int


class OwnerUse(msgspec.Struct, frozen=True):
    """One owner's pages in the tree. `quota_pages` None = it has no quota."""

    owner: str
    num_pages: int
    num_pinned_pages: int
    quota_pages: int | None
    windows: tuple[HitWindow, ...]


class CachedEdge(msgspec.Struct, frozen=True):
    """An edge of the tree, for a picture: `parent` is another edge's id, None below a root.
    `start` tokens come before its first. `token_ids` are its first few, none where the asker may
    not see them. `pinned_until_ns` 0 = not pinned."""

    id: int
    parent: int | None
    owner: str
    start: int
    num_tokens: int
    num_pages: int
    num_hits: int
    last_used_ns: int
    pinned_until_ns: int
    is_locked: bool
    token_ids: list[int] = []


class HotPrefix(msgspec.Struct, frozen=True):
    """A prefix that many requests began with: its tokens (the first and the last few where it is
    long), how many there are, how many requests found it."""

    num_tokens: int
    num_hits: int
    last_used_ns: int
    first_ids: list[int]
    last_ids: list[int] = []


class TierUse(msgspec.Struct, frozen=True):
    """One lower tier since the runtime's start. `num_rejected`: pages that came back but did not
    fit exactly, by reason. `num_dropped`: pages that should have been stored and were not."""

    name: TierName
    is_up: bool
    num_pages: int
    num_bytes: int
    max_bytes: int | None
    num_found: int = 0
    num_missing: int = 0
    num_fetched: int = 0
    num_stored: int = 0
    fetched_bytes: int = 0
    stored_bytes: int = 0
    num_declined: int = 0
    num_failures: int = 0
    num_openings: int = 0
    num_rejected: dict[str, int] = {}
    num_dropped: dict[str, int] = {}


class CacheDescription(msgspec.Struct, frozen=True, tag=True):
    """`edges` are the largest of the tree and all above them; at least `num_left_out` are not among
    them. `windows` are the owner's, or those of all owners together."""

    request_id: str
    page_size: int
    page_bytes: int
    pages_free: int
    pages_cached: int
    pages_locked: int
    pages_held: int
    pages_total: int
    num_evicted_pages: int
    owners: list[OwnerUse]
    hottest: list[HotPrefix] = []
    edges: list[CachedEdge] = []
    num_left_out: int = 0
    tiers: list[TierUse] = []
    windows: tuple[HitWindow, ...] = ()


class CacheFlushed(msgspec.Struct, frozen=True, tag=True):
    """How many pages were forgotten in the tree; those in use stay."""

    request_id: str
    num_pages: int


class CacheFault(msgspec.Struct, frozen=True, tag=True):
    """The question could not be answered; `is_busy`: later it can be."""

    request_id: str
    reason: str
    is_busy: bool = False


CacheAnswer = CacheExplanation | CacheDescription | CacheFlushed | CacheFault
