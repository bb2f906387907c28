"""What a lower tier is: a bounded store of pages under their identities (prefix_cache.identity).

A tier keeps bytes and trusts nobody: what does not fit exactly when it comes back (identity,
tokens, format, length, checksum) is no page, and is counted. Called from the runtime's tier
threads, never from the engine's loop: methods may block, each within a bound of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

TierLabel = Literal["host", "disk", "redis"]


@dataclass(frozen=True, slots=True)
class PageKey:
    """Which page: its identity, and what it must hold. `tokens` are its ids, packed as big-endian
    unsigned 32-bit numbers; only full pages leave the device."""

    identity: bytes
    tokens: bytes


@dataclass(frozen=True, slots=True)
class StoredPage:
    """A page outside the device: `payload` is the KV of all layers as the codec wrote it."""

    key: PageKey
    payload: bytes | memoryview


@dataclass(eq=False, slots=True)
class TierCounts:
    """What a tier counts since its start; reasons are short names such as checksum or full."""

    num_found: int = 0
    num_missing: int = 0
    num_fetched: int = 0
    num_stored: int = 0
    fetched_bytes: int = 0
    stored_bytes: int = 0
    num_failures: int = 0
    num_openings: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)

    def reject(self, reason: str) -> None:
        """A page came back that is not exactly the one asked for."""
        self.rejected[reason] = self.rejected.get(reason, 0) + 1

    def drop(self, reason: str, *, num_pages: int = 1) -> None:
        """Pages were given to be stored and are not."""
        if num_pages:
            self.dropped[reason] = self.dropped.get(reason, 0) + num_pages


class PageTier(Protocol):
    """One lower tier. No method raises for what the world does to it: it counts, and has less."""

    @property
    def label(self) -> TierLabel: ...

    @property
    def is_up(self) -> bool:
        """False while nothing is asked of it (an open breaker, a full or unreadable disk)."""

    @property
    def counts(self) -> TierCounts: ...

    @property
    def num_pages(self) -> int: ...

    @property
    def num_bytes(self) -> int: ...

    @property
    def max_bytes(self) -> int | None: ...

    def count_leading(self, keys: Sequence[PageKey]) -> int:
        """How many of the first keys it has, up to the first that it lacks. No promise."""

    def fetch(self, keys: Sequence[PageKey]) -> list[bytes | memoryview]:
        """The payloads of the first keys, up to the first that is missing or not exactly right."""

    def store(self, pages: Sequence[StoredPage]) -> None:
        """Keeps pages, older ones go; those that it has already are touched."""

    def touch(self, identities: Sequence[bytes]) -> None:
        """These were used, wherever they were read from: pages of a sequence, the first first."""

    def forget(self, identities: Sequence[bytes] | None) -> None:
        """Drops pages; None = all of this model's."""

    def close(self) -> None: ...


@runtime_checkable
class SharedByModels(Protocol):
    """A tier that also has, and never fetches, what other models have left in the same place."""

    def other_roots(self) -> list[bytes]:
        """The roots of their pages' identities."""

    def holds(self, root: bytes, identity: bytes) -> bool:
        """Whether there is such a page of this model or of another one."""
