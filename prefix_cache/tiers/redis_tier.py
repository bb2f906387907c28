"""Pages in a Redis that replicas share, each under its identity, in the form of page_file.py.

Called from the runtime's tier threads. Redis may be slow, full, gone or wrong: then the tier has
less, each call ends within redis_calls.TimeBound, and the counts say why.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, TypeVar

from prefix_cache.tiers.agreement import Agreement, Disagreement
from prefix_cache.tiers.breaker import Breaker, BreakerOpen, FailureKind
from prefix_cache.tiers.buffers import BufferPool
from prefix_cache.tiers.directory import Directory
from prefix_cache.tiers.page_file import PageRejected, decode_page, encode_page, encoded_len
from prefix_cache.tiers.redis_calls import RedisCalls, RedisUnavailable, write_refusal
from prefix_cache.tiers.resp import Buffer, Command, Refusal, Reply
from prefix_cache.tiers.tier import PageKey, StoredPage, TierCounts, TierLabel

if TYPE_CHECKING:
    from collections import Counter

# Replies of one call come into one buffer, of MGETs of a few MB each: each call waits for the
# interpreter's lock a few times, and beside a busy thread each wait takes 5 ms.
WINDOW_BYTES = 10 * 1024 * 1024
_COMMAND_BYTES = 4 * 1024 * 1024
_STORE_BYTES = 4 * 1024 * 1024
# What a page is taken to have before one was seen.
_FIRST_GUESS_BYTES = 256 * 1024
# Of a reply beside the value.
_REPLY_OVERHEAD = 32
_MAX_IDLE_BUFFERS = 4
# One is read into while the pages of another are taken.
_WARM_BUFFERS = 2
_MAX_COMMANDS = 512
# So many pages in a row that are none: then it is the server that is wrong.
MAX_REJECTED_IN_A_ROW = 8
# Touches and removals that wait for upkeep(); more are forgotten.
_MAX_PENDING = 100_000
_SCAN_COUNT = 1000
_FLUSH_S = 10.0
_T = TypeVar("_T")

logger = logging.getLogger(__name__)


class RedisTier:
    """A PageTier. Nothing is read or written before the agreement is settled."""

    def __init__(
        self,
        calls: RedisCalls,
        *,
        root: bytes,
        ttl_s: int,
        agreement: Agreement,
        directory: Directory,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.directory = directory
        self._calls = calls
        self._root = root
        self._prefix = b"radixgate:kv:%s:" % root.hex()[:16].encode()
        self._ttl_s = ttl_s
        self._agreement = agreement
        self._clock = clock
        # A full server is still read from.
        self._writes = Breaker("writing to the Redis of the prefix cache", clock=clock)
        self._buffers = BufferPool(buffer_bytes=WINDOW_BYTES, max_idle=_MAX_IDLE_BUFFERS)
        self._thread: threading.Thread | None = None
        self._is_closed = threading.Event()
        self._lock = threading.Lock()  # over what several threads change below
        self._value_bytes = 0
        self._num_rejected_in_a_row = 0
        self._touched: set[bytes] = set()
        self._unwanted: set[bytes] = set()
        self._has_to_forget = False  # all pages: Redis did not listen
        self._counts = TierCounts()
        self._num_keys = 0
        self._used_bytes = 0
        self._max_bytes: int | None = None

    @property
    def label(self) -> TierLabel:
        return "redis"

    @property
    def is_up(self) -> bool:
        return self._calls.breaker.is_up and self._may_be_used

    @property
    def _may_be_used(self) -> bool:
        return self._agreement.is_settled and not self._has_to_forget

    @property
    def disagreement(self) -> Disagreement | None:
        """Why the tier stays off, where another server of this model id has other terms."""
        return self._agreement.disagreement

    @property
    def failures(self) -> "Counter[FailureKind]":
        """Failures by kind, those of writes among them."""
        return self._calls.breaker.failures() + self._writes.failures()

    @property
    def counts(self) -> TierCounts:
        breakers = (self._calls.breaker, self._writes)
        self._counts.num_failures = sum(breaker.num_failures for breaker in breakers)
        self._counts.num_openings = sum(breaker.num_openings for breaker in breakers)
        return self._counts

    @property
    def num_pages(self) -> int:
        """Keys of the whole server, those of the directory among them, as it last said."""
        return self._num_keys

    @property
    def num_bytes(self) -> int:
        """Of the whole server, as it last said."""
        return self._used_bytes

    @property
    def max_bytes(self) -> int | None:
        return self._max_bytes

    def count_leading(self, keys: Sequence[PageKey]) -> int:
        """As PageTier says. STRLEN says whether a page is there, and how large a reply will be."""
        if not self._may_be_used:
            return 0
        found = 0
        for some in _slices(keys, _MAX_COMMANDS):
            sizes = self._sizes(some)
            found += len(sizes)
            if len(sizes) < len(some):
                break
        with self._lock:
            self._counts.num_found += found
            self._counts.num_missing += len(keys) - found
        return found

    def _sizes(self, keys: Sequence[PageKey]) -> list[int]:
        """Of the first values, up to the first that is not there."""
        try:
            replies = self._calls.run([(b"STRLEN", self._key(key.identity)) for key in keys])
        except RedisUnavailable:
            return []
        sizes = list(takewhile(bool, (reply if isinstance(reply, int) else 0 for reply in replies)))
        if sizes and not self._value_bytes:  # all have the same, and this may be no page of ours
            self._value_bytes = min(sizes[0], WINDOW_BYTES)
        return sizes

    def fetch(self, keys: Sequence[PageKey]) -> list[bytes | memoryview]:
        """As PageTier says. Payloads are views of the buffers they came in, which are used again
        once all views of them are gone: who keeps a page for long keeps a copy."""
        payloads: list[bytes | memoryview] = []
        if not self._may_be_used:
            return payloads
        for window in _slices(keys, max(1, WINDOW_BYTES // self._reply_bytes())):
            found = self._fetch_window(window)
            payloads += found
            if len(found) < len(window):
                break
        with self._lock:
            self._counts.num_fetched += len(payloads)
            self._counts.fetched_bytes += sum(map(len, payloads))
            self._remember(self._touched, [key.identity for key in keys[: len(payloads)]])
        return payloads

    def _fetch_window(self, keys: Sequence[PageKey]) -> list[memoryview]:
        per_command = max(1, _COMMAND_BYTES // self._reply_bytes())
        replies: Sequence[Reply]
        try:
            replies = self._calls.run(
                [
                    (b"MGET", *(self._key(key.identity) for key in some))
                    for some in _slices(keys, per_command)
                ],
                take_buffer=self._buffers.take,
                expected_bytes=len(keys) * self._reply_bytes(),
            )
        except RedisUnavailable as error:
            replies = error.replies
        values = (value for reply in replies if isinstance(reply, list) for value in reply)
        payloads: list[memoryview] = []
        for key, value in zip(keys, values, strict=False):
            payload = self._decode(key, value) if isinstance(value, Buffer) else None
            if payload is None or key.identity in self._unwanted:
                break
            payloads.append(payload)
        return payloads

    def _decode(self, key: PageKey, value: Buffer) -> memoryview | None:
        """None for what is not that page, which is then removed, so that it is stored anew."""
        try:
            payload = decode_page(value, key, root=self._root)
        except PageRejected as error:
            self._reject(key, error.reason)
            return None
        self._num_rejected_in_a_row = 0
        self._value_bytes = len(value)
        return payload

    def _reject(self, key: PageKey, reason: str) -> None:
        with self._lock:
            self._counts.reject(reason)
            self._remember(self._unwanted, [key.identity])
            self._num_rejected_in_a_row += 1
            if self._num_rejected_in_a_row < MAX_REJECTED_IN_A_ROW:
                return
            self._num_rejected_in_a_row = 0
        self._calls.breaker.fail("garbage", f"{MAX_REJECTED_IN_A_ROW} values were no pages")

    def store(self, pages: Sequence[StoredPage]) -> None:
        """As PageTier says; a page's time to live begins anew."""
        if not self._agreement.is_settled:
            self._drop("agreement", len(pages))
            return
        if self._has_to_forget:
            self._drop("down", len(pages))
            return
        if pages:
            self._value_bytes = encoded_len(pages[0].key, pages[0].payload)
        for some in _slices(pages, max(1, _STORE_BYTES // self._reply_bytes())):
            self._store_some(some)

    def _store_some(self, pages: Sequence[StoredPage]) -> None:
        try:
            is_trial = self._writes.enter()
        except BreakerOpen:
            self._drop("down", len(pages))
            return
        new = pages
        try:
            new = self._without_known(pages)
            replies = self._calls.run([self._set(page) for page in new], is_patient=True)
        except RedisUnavailable as error:
            self._writes.leave(is_trial=is_trial)
            # It may have some of them: nobody knows.
            self._drop(error.kind or "down", len(new))
            return
        except BaseException:
            self._writes.leave(is_trial=is_trial)
            raise
        self._count_stored(new, replies, is_trial=is_trial)

    def _count_stored(
        self, pages: Sequence[StoredPage], replies: Sequence[Reply], *, is_trial: bool
    ) -> None:
        refused = next((reply for reply in replies if isinstance(reply, Refusal)), None)
        kind = write_refusal(refused)
        if refused is not None and kind is not None:
            self._writes.fail(kind, refused.line, is_trial=is_trial)
        elif pages:
            self._writes.succeed(is_trial=is_trial)
        else:  # nothing was written
            self._writes.leave(is_trial=is_trial)
        stored = [page for page, reply in zip(pages, replies, strict=True) if reply == b"OK"]
        with self._lock:
            self._counts.num_stored += len(stored)
            self._counts.stored_bytes += sum(memoryview(page.payload).nbytes for page in stored)
        if len(stored) < len(pages):
            self._drop(kind or "error", len(pages) - len(stored))

    def _without_known(self, pages: Sequence[StoredPage]) -> list[StoredPage]:
        """Those that Redis has not; the others live longer."""
        expiries = [self._expire(page.key.identity) for page in pages]
        replies = self._calls.run(expiries, is_patient=True)
        return [page for page, reply in zip(pages, replies, strict=True) if reply != 1]

    def touch(self, identities: Sequence[bytes]) -> None:
        """As PageTier says; their time to live begins anew with the next upkeep()."""
        with self._lock:
            self._remember(self._touched, identities)

    def forget(self, identities: Sequence[bytes] | None) -> None:
        """As PageTier says: they are gone for all replicas. Where Redis does not listen, upkeep()
        tells it later; until then none of them is read."""
        try:
            if identities is None:
                self._has_to_forget = True
                self._forget_all()
            else:
                with self._lock:
                    self._unwanted.update(identities)
                self._send_unwanted()
        except RedisUnavailable as error:
            logger.warning("not all pages in Redis are forgotten yet: %s", error)

    def _forget_all(self) -> None:
        deadline, cursor = self._clock() + _FLUSH_S, b"0"
        while self._clock() < deadline:
            cursor, names = self._scan(cursor)
            self._unlink(names)
            if cursor == b"0":
                self._has_to_forget = False
                return
        raise RedisUnavailable("timeout", f"there are more than {_FLUSH_S:g} s of them")

    def _scan(self, cursor: bytes) -> tuple[bytes, list[bytes]]:
        """Where to go on (0 = nowhere), and some of our keys."""
        scan = (b"SCAN", cursor, b"MATCH", self._prefix + b"*", b"COUNT", _SCAN_COUNT)
        (reply,) = self._calls.run([scan], is_patient=True)
        if isinstance(reply, list) and len(reply) == 2:
            following, names = reply
            if isinstance(following, bytes) and isinstance(names, list):
                return following, [name for name in names if isinstance(name, bytes)]
        raise RedisUnavailable("garbage", "no answer to a scan")

    def _unlink(self, keys: Sequence[bytes]) -> None:
        for some in _slices(keys, _MAX_COMMANDS):
            self._calls.run([(b"UNLINK", *some)], is_patient=True)

    def upkeep(self) -> None:
        """To be called every few seconds, by a thread that no request waits for: renews leases,
        tries to agree where Redis was not there before, and says what was used to live longer."""
        was_told = self._agreement.disagreement is not None
        try:
            self._agreement.settle()
        except Disagreement as error:
            if not was_told:
                logger.error("the Redis of the prefix cache is not used: %s", error)
        except RedisUnavailable:
            pass
        if self._agreement.is_settled:
            self.directory.renew()
            try:
                if self._has_to_forget:
                    self._forget_all()
                self._send_pending()
                self._look()
            except RedisUnavailable:
                pass

    def _send_pending(self) -> None:
        with self._lock:
            touched, self._touched = self._touched - self._unwanted, set()
        self._send_unwanted()
        for some in _slices(list(touched), _MAX_COMMANDS):
            self._calls.run([self._expire(identity) for identity in some], is_patient=True)

    def _send_unwanted(self) -> None:
        with self._lock:
            unwanted = list(self._unwanted)
        self._unlink([self._key(identity) for identity in unwanted])
        with self._lock:
            self._unwanted.difference_update(unwanted)

    def _look(self) -> None:
        """How large the server is; who may not ask that goes without."""
        keys, memory = self._calls.run([(b"DBSIZE",), (b"INFO", b"memory")], allows_refusals=True)
        if isinstance(keys, int) and isinstance(memory, Buffer):
            figures = dict(line.partition(b":")[::2] for line in bytes(memory).split())
            self._num_keys = keys
            self._used_bytes = int(figures.get(b"used_memory", 0))
            self._max_bytes = int(figures.get(b"maxmemory", 0)) or None

    def warm(self) -> None:
        """Has memory for a first fetch ready."""
        self._buffers.warm(_WARM_BUFFERS)

    def start_upkeep(self, interval_s: float) -> None:
        """Calls upkeep() now and every so often, until close(), in a thread of its own."""
        self._thread = threading.Thread(
            target=self._keep_up, args=(interval_s,), name="redis-upkeep", daemon=True
        )
        self._thread.start()

    def _keep_up(self, interval_s: float) -> None:
        while True:
            try:
                self.upkeep()
            except Exception:
                logger.exception("the upkeep of the prefix cache in Redis failed")
            if self._is_closed.wait(interval_s):
                return

    def close(self) -> None:
        """As PageTier says; what this runtime has on its device is nobody's at once."""
        self._is_closed.set()
        if self._thread is not None:
            self._thread.join()
        self.directory.leave()
        self._calls.close()

    def _reply_bytes(self) -> int:
        return (self._value_bytes or _FIRST_GUESS_BYTES) + _REPLY_OVERHEAD

    def _set(self, page: StoredPage) -> Command:
        head, payload = encode_page(page.key, page.payload, root=self._root)
        value = (head, memoryview(payload).cast("B"))
        return (b"SET", self._key(page.key.identity), value, b"EX", self._ttl_s)

    def _expire(self, identity: bytes) -> Command:
        return (b"EXPIRE", self._key(identity), self._ttl_s)

    def _key(self, identity: bytes) -> bytes:
        return self._prefix + identity.hex().encode()

    def _drop(self, reason: str, num_pages: int) -> None:
        with self._lock:
            self._counts.drop(reason, num_pages=num_pages)

    def _remember(self, pending: set[bytes], identities: Iterable[bytes]) -> None:
        if len(pending) < _MAX_PENDING:
            pending.update(identities)


def _slices(items: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
