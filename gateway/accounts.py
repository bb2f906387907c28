"""What is known of a caller: the tenant it belongs to, what it may use, and how much of it."""

import hashlib
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

Role = Literal["user", "monitor", "admin"]
ALL_MODELS = ("*",)


@dataclass(frozen=True, slots=True)
class AccountLimits:
    """A tenant's limits; all its keys share them. None = no limit. `max_concurrent` are sequences
    at a time on one server. `cache_quota_mb` is what its cache may hold on the device."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    max_concurrent: int | None = None
    cache_quota_mb: int | None = None

    @property
    def are_counted(self) -> bool:
        """Whether anything is counted by the minute."""
        return self.requests_per_minute is not None or self.tokens_per_minute is not None


@dataclass(frozen=True, slots=True)
class Account:
    """One key's view of the server. `tenant` is a hash that is safe to log, "" where no keys are
    set. `counter` is the name of the tenant's counters, which other servers use as well. `models`
    are ids, further names, or patterns of them. `cache_owner` is a hash as well, of whom the cache
    belongs to: the tenant, or its `cache_group`; no group has the hash of a tenant."""

    tenant: str = ""
    counter: str = ""
    role: Role = "user"
    models: tuple[str, ...] = ALL_MODELS
    limits: AccountLimits = field(default_factory=AccountLimits)
    cache_group: str = ""

    @property
    def cache_owner(self) -> str:
        return self.cache_group or self.tenant

    @property
    def is_admin(self) -> bool:
        return self.role == "admin"

    @property
    def sees_all(self) -> bool:
        """Whether it may know of other tenants: an admin, and everybody where no keys are set."""
        return self.is_admin or not self.tenant

    @property
    def sees_tenants(self) -> bool:
        """Whether metrics show it what each tenant took."""
        return self.sees_all or self.role == "monitor"

    def may_use(self, *names: str) -> bool:
        """Whether the model that has these names is open to this key; one of them is enough."""
        return any(fnmatchcase(name, pattern) for pattern in self.models for name in names)


ANONYMOUS = Account()


def digest_of(key: str) -> bytes:
    """What the key file holds of a key. A plain hash does: a key is too random to be guessed."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
