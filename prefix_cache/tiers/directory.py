"""Who has which page on its device: page identity -> holders, in Redis.

A holder is one incarnation of a runtime. It has a lease that it renews every few seconds; entries
of a holder without a lease are nobody's, and each entry ends by itself unless its holder renews it.
Used by the runtime, which announces, and by whoever routes requests, who asks.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from prefix_cache.tiers.redis_calls import RedisCalls, RedisUnavailable
from prefix_cache.tiers.resp import Command, Reply

LEASE_MS = 15_000
ENTRY_TTL_S = 600.0
# Of one call: some milliseconds of the server's time.
_MAX_PAGES = 500
_MAX_COMMANDS = 3 * _MAX_PAGES


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
        self._lock = threading.Lock()  # over all below
        # What Redis has as ours, by when it was told: the oldest come first.
        self._announced_at: dict[bytes, float] = {}
        # What it is to be told: this is ours (True), this is no more.
        self._unsaid: dict[bytes, bool] = {}

    @property
    def num_held(self) -> int:
        """Pages that this holder has, as far as it was told."""
        with self._lock:
            changes = Counter(self._unsaid.values())
            return len(self._announced_at) + changes[True] - changes[False]

    def note(self, stored: Sequence[bytes], removed: Sequence[bytes] = ()) -> None:
        """This holder has these pages now, and those no more: what is in both is there. Asks
        nothing of Redis, which is told by announce() or renew()."""
        with self._lock:
            for identities, is_held in ((removed, False), (stored, True)):
                for identity in identities:
                    if (identity in self._announced_at) == is_held:
                        self._unsaid.pop(identity, None)
                    else:
                        self._unsaid[identity] = is_held

    def announce(self, stored: Sequence[bytes] = (), removed: Sequence[bytes] = ()) -> None:
        """As note(), and tells Redis; what it does not take is told again later."""
        self.note(stored, removed)
        while self._announce_some():
            pass

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
        if not self._send([(b"SET", _lease_key(self._holder), b"1", b"PX", self._lease_ms)]):
            return
        oldest_wanted = self._clock() - self._entry_ttl_s / 2
        with self._lock:
            for identity, at in list(islice(self._announced_at.items(), _MAX_PAGES)):
                if at <= oldest_wanted and identity not in self._unsaid:
                    del self._announced_at[identity]
                    self._unsaid[identity] = True
        self.announce()

    def leave(self) -> None:
        """The holder ends: all its entries are nobody's at once."""
        with self._lock:
            self._announced_at.clear()
            self._unsaid.clear()
        self._send([(b"DEL", _lease_key(self._holder))])

    def _announce_some(self) -> bool:
        """Whether there is more to say, to a Redis that listens."""
        said = self._take_unsaid()
        if not said:
            return False
        is_taken = self._send(
            command
            for identity, is_held in said.items()
            for command in (self._entry(identity) if is_held else (self._removal(identity),))
        )
        if not is_taken:
            self._take_back(said)
        return is_taken

    def _take_unsaid(self) -> dict[bytes, bool]:
        """Counts as said from now on, so that what is noted meanwhile comes on top of it."""
        now = self._clock()
        with self._lock:
            said = dict(islice(self._unsaid.items(), _MAX_PAGES))
            for identity, is_held in said.items():
                del self._unsaid[identity]
                self._announced_at.pop(identity, None)
                if is_held:
                    self._announced_at[identity] = now
        return said

    def _take_back(self, said: dict[bytes, bool]) -> None:
        now = self._clock()
        with self._lock:
            for identity, is_held in said.items():
                if identity in self._unsaid:  # there is something newer to say
                    continue
                self._unsaid[identity] = is_held
                self._announced_at.pop(identity, None)
                if not is_held:
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
            self._ask(commands, is_patient=True)
        except RedisUnavailable:
            return False
        return True

    def _ask(self, commands: Iterable[Command], *, is_patient: bool = False) -> list[Reply]:
        slices = _slices(commands)
        return [reply for some in slices for reply in self._calls.run(some, is_patient=is_patient)]

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
