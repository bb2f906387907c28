"""Which namespaces each owner used last: where to look for a prompt that is not in its own.

Kept apart from the tree, so that a question of one owner never walks over what others have.
"""

from collections import OrderedDict

MAX_OWNERS = 1000
MAX_NAMESPACES = 64


class RecentNamespaces:
    """Bounded both ways; who or what was used least recently is forgotten."""

    def __init__(
        self, *, max_owners: int = MAX_OWNERS, max_namespaces: int = MAX_NAMESPACES
    ) -> None:
        self._max_owners = max_owners
        self._max_namespaces = max_namespaces
        self._owners: OrderedDict[str, OrderedDict[bytes, None]] = OrderedDict()

    def note(self, owner: str, namespace: bytes) -> None:
        """A request of that owner used the namespace."""
        namespaces = self._owners.setdefault(owner, OrderedDict())
        self._owners.move_to_end(owner)
        namespaces[namespace] = None
        namespaces.move_to_end(namespace)
        if len(namespaces) > self._max_namespaces:
            namespaces.popitem(last=False)
        if len(self._owners) > self._max_owners:
            self._owners.popitem(last=False)

    def of(self, owner: str) -> list[bytes]:
        """The last used first."""
        return list(reversed(self._owners.get(owner, ())))
