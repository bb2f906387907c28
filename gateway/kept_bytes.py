"""Values of many tenants in memory, bounded by number, bytes and age. No value is seen by another
tenant, and who keeps the most makes room first. The event loop's thread owns it."""

import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KeepLimits:
    """`ttl_s` counts from the last use of a value."""

    max_values: int
    max_bytes: int
    ttl_s: float


@dataclass(frozen=True, slots=True)
class _Kept:
    value: bytes
    expires_at: float


class KeptBytes:
    """`num_values` and `num_bytes` are those of all tenants."""

    def __init__(self, limits: KeepLimits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._tenants: dict[str, OrderedDict[str, _Kept]] = {}
        self._bytes_of: Counter[str] = Counter()
        self.num_values = 0
        self.num_bytes = 0

    @property
    def is_on(self) -> bool:
        return self._limits.max_values > 0

    def put(self, tenant: str, key: str, value: bytes) -> bool:
        """Whether it is kept: there may be no room for it, or none beside what others keep."""
        if len(value) > self._limits.max_bytes or not self.is_on:
            return False
        self.pop(tenant, key)
        self._expire()
        kept = _Kept(value, self._clock() + self._limits.ttl_s)
        self._tenants.setdefault(tenant, OrderedDict())[key] = kept
        self._count(tenant, 1, len(value))
        while self.num_bytes > self._limits.max_bytes:
            self._drop_oldest(self._bytes_of.most_common(1)[0][0])
        while self.num_values > self._limits.max_values:
            self._drop_oldest(max(self._tenants, key=lambda name: len(self._tenants[name])))
        return key in self._tenants.get(tenant, ())

    def get(self, tenant: str, key: str) -> bytes | None:
        """Looking at a value counts as use of it."""
        values = self._tenants.get(tenant)
        kept = None if values is None else values.get(key)
        if values is None or kept is None or kept.expires_at <= self._clock():
            return None
        values[key] = _Kept(kept.value, self._clock() + self._limits.ttl_s)
        values.move_to_end(key)
        return kept.value

    def pop(self, tenant: str, key: str) -> bool:
        """Whether there was such a value."""
        values = self._tenants.get(tenant)
        kept = None if values is None else values.pop(key, None)
        if kept is None:
            return False
        self._count(tenant, -1, -len(kept.value))
        if not values:
            del self._tenants[tenant], self._bytes_of[tenant]
        return kept.expires_at > self._clock()

    def _count(self, tenant: str, num_values: int, num_bytes: int) -> None:
        self.num_values += num_values
        self.num_bytes += num_bytes
        self._bytes_of[tenant] += num_bytes

    def _expire(self) -> None:
        """In each tenant's order of use the first are the first to expire."""
        now = self._clock()
        for tenant in list(self._tenants):
            values = self._tenants[tenant]
            while values and next(iter(values.values())).expires_at <= now:
                self._drop_oldest(tenant)

    def _drop_oldest(self, tenant: str) -> None:
        self.pop(tenant, next(iter(self._tenants[tenant])))
