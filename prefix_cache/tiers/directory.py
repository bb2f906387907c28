"""Who has which page on its device: page identity -> holders, in Redis.

A holder is one incarnation of a runtime. It has a lease that it renews every few seconds; entries
of a holder without a lease are nobody's, and each entry ends by itself unless its holder renews it.
Used by the runtime, which announces, and by whoever routes requests, who asks.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from prefix_cache.tiers.redis_calls import RedisCalls, RedisUnavailable
from prefix_cache.tiers.resp import Command, Reply

LEASE_MS = 15_000
ENTRY_TTL_S = 600.0
# Commands of one call: some milliseconds of the server's time.
_MAX_COMMANDS = 1500


class Directory:
    """Called from any thread. No method raises for what the world does: an answer may be late by
    a lease, or missing, and says where a page probably is."""

    def __init__(
        self,
        calls: RedisCalls,
        *,
        root: bytes,
        holder: str,
        lease_ms: int = LEASE_MS,
        entry_ttl_s: float = ENTRY_TTL_S,
        wall_clock: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`root` is that of the pages' identities; `holder` a name without spaces."""
        self._calls = calls
        self._prefix = b"radixgate:kv-at:%s:" % root.hex()[:16].encode()
        self._holder = holder.encode()
        self._lease_ms = lease_ms
        self._entry_ttl_s = entry_ttl_s
        self._wall_clock = wall_clock
        self._clock = clock
        self._lock = threading.Lock()
        # What we hold, by when it was announced: the oldest come first.
        self._announced_at: dict[bytes, float] = {}

    @property
    def num_held(self) -> int:
        """Pages that this holder has announced and not removed."""
        return len(self._announced_at)

    def announce(self, stored: Sequence[bytes], removed: Sequence[bytes] = ()) -> None:
        """This holder has these pages now, and those no more."""
        now = self._clock()
        with self._lock:
            for identity in removed:
                self._announced_at.pop(identity, None)
            for identity in stored:
                self._announced_at.pop(identity, None)
                self._announced_at[identity] = now
        gone = set(removed).difference(stored)
        self._send(self._removal(identity) for identity in gone)
        self._send(command for identity in stored for command in self._entry(identity))

    def holders(self, identities: Sequence[bytes]) -> list[frozenset[str]]:
        """Of each page, who has it. Nobody where Redis cannot say."""
        nobody: list[frozenset[str]] = [frozenset()] * len(identities)
        try:
            entries = self._ask(
                (b"ZRANGEBYSCORE", self._key(identity), self._now_text(), b"+inf")
                for identity in identities
            )
            named = [_names(reply) for reply in entries]
            everyone = sorted(set().union(*named))
            leases = self._ask((b"EXISTS", _lease_key(name)) for name in everyone)
        except RedisUnavailable:
            return nobody
        alive = {name for name, reply in zip(everyone, leases, strict=True) if reply == 1}
        return [frozenset(name.decode() for name in names & alive) for names in named]

    def renew(self) -> None:
        """Renews the lease, and the entries that have lived through half of their time: after a
        Redis that lost everything, all are there again after that long."""
        self._send([(b"SET", _lease_key(self._holder), b"1", b"PX", self._lease_ms)])
        now = self._clock()
        oldest_wanted = now - self._entry_ttl_s / 2
        with self._lock:
            due = [
                identity
                for identity, at in islice(self._announced_at.items(), _MAX_COMMANDS)
                if at <= oldest_wanted
            ]
        if due and self._send(c for identity in due for c in self._entry(identity)):
            self._mark_announced(due, now)

    def leave(self) -> None:
        """The holder ends: all its entries are nobody's at once."""
        with self._lock:
            self._announced_at.clear()
        self._send([(b"DEL", _lease_key(self._holder))])

    def _mark_announced(self, identities: Iterable[bytes], now: float) -> None:
        with self._lock:
            for identity in identities:
                if self._announced_at.pop(identity, None) is not None:
                    self._announced_at[identity] = now

    def _entry(self, identity: bytes) -> tuple[Command, ...]:
        """A member ends at its score, the key with the last of them."""
        key, ends_at = self._key(identity), self._wall_clock() + self._entry_ttl_s
        return (
            (b"ZREMRANGEBYSCORE", key, b"-inf", self._now_text()),
            (b"ZADD", key, b"%.3f" % ends_at, self._holder),
            (b"PEXPIRE", key, int(self._entry_ttl_s * 1000)),
        )

    def _removal(self, identity: bytes) -> Command:
        return (b"ZREM", self._key(identity), self._holder)

    def _send(self, commands: Iterable[Command]) -> bool:
        """Whether Redis took them all; it may have refused to write."""
        try:
            self._ask(commands)
        except RedisUnavailable:
            return False
        return True

    def _ask(self, commands: Iterable[Command]) -> list[Reply]:
        return [reply for some in _slices(commands) for reply in self._calls.run(some)]

    def _key(self, identity: bytes) -> bytes:
        return self._prefix + identity.hex().encode()

    def _now_text(self) -> bytes:
        return b"%.3f" % self._wall_clock()


def _lease_key(holder: bytes) -> bytes:
    return b"radixgate:kv-holder:" + holder


def _names(reply: Reply) -> set[bytes]:
    names = reply if isinstance(reply, list) else []
    return {name for name in names if isinstance(name, bytes)}


def _slices(commands: Iterable[Command]) -> Iterator[list[Command]]:
    rest = iter(commands)
    while some := list(islice(rest, _MAX_COMMANDS)):
        yield some
