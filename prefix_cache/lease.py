"""What a running sequence holds of the cache, and the snapshots the cache hands out."""

from dataclasses import dataclass, field

from prefix_cache.node import Node


@dataclass(frozen=True, slots=True)
class TailMatch:
    """The first `num_tokens` slots of page `page_id` hold the tokens after the shared pages."""

    page_id: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class PageCounts:
    """Pages by state: free + cached + held = total; `locked` is the part of `cached` in use,
    `pinned` the part that is evicted last."""

    free: int
    cached: int
    locked: int
    held: int
    total: int
    pinned: int = 0


@dataclass(eq=False, slots=True)
class Lease:
    """One sequence's pages, from `acquire` to `release`. Callers read it, the cache writes it.

    | range of `page_ids`            | whose                                              |
    | ------------------------------ | -------------------------------------------------- |
    | [0, num_locked_pages)          | in the tree, locked by this lease, never written   |
    | [num_locked_pages, len)        | held by this lease alone                           |

    `num_shared_tokens` and `num_cached_tokens` are those of the match and stay as they are.
    `tail` is to be copied into the first page that `extend` gives; None once that is done.
    `publish` may exchange entries of `page_ids`, so each step reads them anew.
    """

    page_ids: list[int] = field(default_factory=list)
    num_shared_tokens: int = 0
    tail: TailMatch | None = None
    num_tail_tokens: int = 0
    num_locked_pages: int = 0
    namespace: bytes | None = None
    owner: str = ""
    node: Node | None = field(default=None, repr=False)
    tail_node: Node | None = field(default=None, repr=False)
    is_open: bool = True

    @property
    def num_cached_tokens(self) -> int:
        """How many tokens need no computing: whole shared pages and the copied part of one."""
        return self.num_shared_tokens + self.num_tail_tokens

    @property
    def num_held_pages(self) -> int:
        return len(self.page_ids) - self.num_locked_pages
