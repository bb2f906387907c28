"""Answers of the cache routes: why a prompt is cached or not, what the cache holds, what a flush
took away. Also what generators give to them (gateway.generation.ServedCache)."""

from typing import Literal

import msgspec

from runtime.cache_messages import EvictionCause, MissReason, TierName

# Beside what a runtime says: the request itself keeps the cache out.
Reason = MissReason | Literal["cache_prompt_false", "no_breakpoint", "prompt_scored"]
# `memory` stands for the two kinds of requests that a tenant may not tell apart.
EvictedFor = EvictionCause | Literal["memory"]
PlaceKind = Literal["content", "message", "preamble", "generation_prompt"]


class TokenShown(msgspec.Struct, frozen=True):
    """A token, and the text of some tokens after it."""

    token_id: int
    text: str
    after: str


class PlaceShown(msgspec.Struct, frozen=True):
    """`offset` counts the characters of the message's content, or of `part` of it, before the
    token. `message`: what the template writes around the content of that message. What comes before
    the first content (`preamble`) and after all messages (`generation_prompt`) has no index."""

    kind: PlaceKind
    index: int | None
    role: str | None
    part: int | None
    offset: int | None


class Difference(msgspec.Struct, frozen=True):
    """The first token that was not found: its index in the prompt, the text before it, which both
    sides have, and how each goes on. `cached` is null where nothing cached goes on from there."""

    index: int
    before: str
    prompt: TokenShown
    cached: TokenShown | None
    message: PlaceShown | None


class CacheExplanation(msgspec.Struct, frozen=True):
    """`matched_tokens` are in the tier `device`, where they are used at once; `tiers` also has how
    many right behind them lower tiers hold. `cacheable_tokens` is the most that can be found, as
    the last token of a prompt is always computed. `explanation` says `reason` for people."""

    model: str
    prompt_tokens: int
    cacheable_tokens: int
    matched_tokens: int
    tiers: dict[TierName, int]
    reason: Reason | None
    explanation: str
    first_difference: Difference | None = None
    evicted_at: str | None = None
    evicted_at_s: float | None = None
    evicted_for: EvictedFor | None = None
    object: Literal["cache.explanation"] = "cache.explanation"


class CacheExplanations(msgspec.Struct, frozen=True):
    """One for each of several prompts, in their order."""

    data: tuple[CacheExplanation, ...]
    object: Literal["list"] = "list"


class PoolState(msgspec.Struct, frozen=True):
    """The pages of the device. How they are used is told only to who may see all owners."""

    pages: int
    bytes: int
    free_pages: int | None = None
    cached_pages: int | None = None
    locked_pages: int | None = None
    held_pages: int | None = None
    evicted_pages: int | None = None


class TierState(msgspec.Struct, frozen=True):
    """A tier below the device. What it holds and did is told only to who may see all owners."""

    name: TierName
    is_up: bool
    max_bytes: int | None
    pages: int | None = None
    bytes: int | None = None
    found: int | None = None
    missing: int | None = None
    fetched: int | None = None
    stored: int | None = None
    declined: int | None = None
    failures: int | None = None
    rejected: dict[str, int] | None = None
    dropped: dict[str, int] | None = None


class HitRate(msgspec.Struct, frozen=True):
    """Of requests that began within the last `window_s` seconds, null for all since the start.
    `hit_rate` is null where there was no prompt."""

    window_s: int | None
    requests: int
    prompt_tokens: int
    cached_tokens: int
    hit_rate: float | None


class OwnerState(msgspec.Struct, frozen=True):
    """One owner's pages on the device. `owner` is a hash, "" where no keys are set."""

    owner: str
    is_own: bool
    pages: int
    bytes: int
    pinned_pages: int
    quota_pages: int | None
    hit_rates: tuple[HitRate, ...]


class HotPrefixState(msgspec.Struct, frozen=True):
    """A prefix that many requests began with. `ends_with` is null where all of it is in
    `starts_with`."""

    tokens: int
    hits: int
    last_used_at: str | None
    starts_with: str
    ends_with: str | None


class TreeNode(msgspec.Struct, frozen=True):
    """An edge of the tree: `tokens` tokens after the `start` before it. `parent` is another node's
    id, null at the root. `text` is how it begins, null for another owner's."""

    id: int
    parent: int | None
    owner: str
    start: int
    tokens: int
    pages: int
    hits: int
    last_used_at: str | None
    pinned_until: str | None
    in_use: bool
    text: str | None


class TreeState(msgspec.Struct, frozen=True):
    """Parents come before their children. `left_out` more nodes are smaller than these."""

    nodes: tuple[TreeNode, ...]
    left_out: int


class CacheState(msgspec.Struct, frozen=True):
    """`scope` own: of the asking key's owner only; all: every owner, others without any text."""

    model: str
    scope: Literal["own", "all"]
    page_size: int
    page_bytes: int
    pool: PoolState
    tiers: tuple[TierState, ...]
    hit_rates: tuple[HitRate, ...]
    owners: tuple[OwnerState, ...]
    hottest: tuple[HotPrefixState, ...]
    tree: TreeState
    object: Literal["cache"] = "cache"


class CacheFlush(msgspec.Struct, frozen=True):
    """How many pages were forgotten on the device. Those that requests use stay."""

    model: str
    pages: int
    object: Literal["cache.flushed"] = "cache.flushed"
