"""What the tree counts for each owner: a tenant, or a group of tenants that share."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prefix_cache.expiries import Expiries, Pin

if TYPE_CHECKING:
    from prefix_cache.node import Node, Root


@dataclass(eq=False, slots=True)
class OwnerPages:
    """One owner's part of the tree. `max_pages` None = it has no quota.

    `pins_of` has the pins that cover a node, for pinned nodes only. Pins without a key are not in
    `pins_by_key`.
    """

    owner: str
    num_pages: int = 0
    max_pages: int | None = None
    num_pinned: int = 0
    roots: "dict[bytes, Root]" = field(default_factory=dict)
    pins_of: "dict[Node, set[Pin]]" = field(default_factory=dict)
    pins_by_key: dict[str, list[Pin]] = field(default_factory=dict)
    expiries: Expiries = field(default_factory=Expiries)

    @property
    def num_over_quota(self) -> int:
        return 0 if self.max_pages is None else max(0, self.num_pages - self.max_pages)


class Owners:
    """All owners that have pages in the tree or a quota; others are forgotten."""

    def __init__(self) -> None:
        self._pages: dict[str, OwnerPages] = {}

    def __iter__(self) -> Iterator[OwnerPages]:
        return iter(self._pages.values())

    def find(self, owner: str) -> OwnerPages | None:
        return self._pages.get(owner)

    def of(self, owner: str) -> OwnerPages:
        """The owner's record, made where there is none."""
        return self._pages.setdefault(owner, OwnerPages(owner))

    def forget_if_idle(self, pages: OwnerPages) -> None:
        if not pages.roots and pages.max_pages is None:
            self._pages.pop(pages.owner, None)
