"""Errors of the prefix cache.

PrefixCacheError
├── OutOfPages     more pages wanted than are free or evictable; nothing was changed
└── LeaseEnded     a lease was used after its release
"""


class PrefixCacheError(Exception):
    """Base of the package's errors."""


class OutOfPages(PrefixCacheError):
    """`needed` pages were asked for, only `available` are free or can be evicted."""

    def __init__(self, needed: int, available: int) -> None:
        super().__init__(
            f"{needed} pages needed, {available} available; end a sequence or enlarge the pool"
        )
        self.needed = needed
        self.available = available


class LeaseEnded(PrefixCacheError):
    """The lease was released; acquire a new one."""

    def __init__(self) -> None:
        super().__init__("the lease has been released; acquire a new one")
