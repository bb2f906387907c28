"""What questions about the cache need of the tiers below the device."""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol

from runtime.cache_messages import TierName, TierUse


@dataclass(frozen=True, slots=True)
class TierFindings:
    """How many tokens each tier has of those behind the device's, in the order in which they would
    be fetched; `is_other_model`: pages of these tokens are there, computed by another model."""

    tokens: dict[TierName, int] = field(default_factory=dict)
    is_other_model: bool = False


class TierView(Protocol):
    """Asked from the engine's loop: no call waits for a disk or a network."""

    def use(self) -> tuple[TierUse, ...]:
        """Sizes and counters of each tier."""

    def look_up(
        self, namespace: bytes, token_ids: Sequence[int], *, start: int
    ) -> Future[TierFindings]:
        """What is there of the full pages of `token_ids` from token `start` on. Fetches nothing."""

    def forget(self, owner: str | None) -> None:
        """Begins to drop what is stored of one owner (None = all of this model's pages)."""
