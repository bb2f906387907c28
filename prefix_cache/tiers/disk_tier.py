"""Pages in a folder on disk, which outlive the process and which several processes may share.

Called from the tier threads: one that fetches and one that stores, at the same time.
"""

import errno
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from prefix_cache.tiers.file_ledger import FileLedger
from prefix_cache.tiers.page_file import PageRejected, decode_page, encode_page, encoded_len
from prefix_cache.tiers.page_folder import FoundFile, PageFolder, file_name, folder_name, is_due
from prefix_cache.tiers.pause import Pause
from prefix_cache.tiers.tier import PageKey, StoredPage, TierCounts, TierLabel

# After so much of the bound has been written the folder is walked again, as others write there
# too: with each of them it may be larger than the bound by so much, for so long.
RESCAN_SHARE = 1 / 32
_IS_FULL = {errno.ENOSPC, errno.EDQUOT}

logger = logging.getLogger(__name__)


class DiskTier:
    """A PageTier in `folder`, bounded to `max_bytes` with all files of pages counted, whoever they
    belong to. First go the pages of models that nobody serves any more, then the least recently
    used, and of pages that were used together those nearer to the end of a sequence.

    Reading and writing are paused apart: of a disk that is full or cannot be written, pages are
    read. `is_up` is about reading, but for a disk that cannot be written and has nothing to read.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        root: bytes,
        max_bytes: int,
        clock_ns: Callable[[], int] = time.time_ns,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = Path(folder)
        self._root = root
        self._max_bytes = max_bytes
        self._clock_ns = clock_ns
        self._folder = PageFolder(self._path, root=root)
        self._counts = TierCounts()
        self._ledger = FileLedger(own_folder=folder_name(root))
        self._unscanned_bytes: int | None = None  # written since the last walk; None = no walk yet
        # What is to be forgotten and is still on a disk that cannot be written.
        self._has_to_forget = False  # all pages
        self._unwanted: set[bytes] = set()
        self._reading = Pause(monotonic_s)
        self._writing = Pause(monotonic_s)
        # Held by what changes files, for as long as it takes. The other one guards the ledger,
        # counts and pauses, and is never held during I/O.
        self._changing = threading.Lock()
        self._lock = threading.Lock()

    @property
    def label(self) -> TierLabel:
        return "disk"

    @property
    def is_up(self) -> bool:
        with self._lock:
            return not self._reading.is_on and (not self._writing.is_on or self._ledger.num_own > 0)

    @property
    def counts(self) -> TierCounts:
        return self._counts

    @property
    def num_pages(self) -> int:
        """Of this model."""
        return self._ledger.num_own

    @property
    def num_bytes(self) -> int:
        """Of all models' files, as `max_bytes` bounds them."""
        return self._ledger.num_bytes

    @property
    def max_bytes(self) -> int | None:
        return self._max_bytes

    def start(self) -> None:
        """Makes the folder and takes stock of it."""
        with self._changing:
            try:
                self._scan()
            except OSError as error:
                self._fail(self._writing, error)

    def count_leading(self, keys: Sequence[PageKey]) -> int:
        """Looks at the disk, so that what another process wrote is found."""
        if self._is_paused(self._reading) or self._has_to_forget:
            return 0
        try:
            count = self._folder.count_leading([self._name(key.identity) for key in keys])
        except OSError as error:
            self._fail(self._reading, error)
            return 0
        with self._lock:
            self._counts.num_found += count
            self._counts.num_missing += len(keys) - count
        return count

    def fetch(self, keys: Sequence[PageKey]) -> list[bytes | memoryview]:
        payloads: list[bytes | memoryview] = []
        now_ns = self._clock_ns()
        if not self._is_paused(self._reading) and not self._has_to_forget:
            for place, key in enumerate(keys):
                payload = self._fetch_one(key, used_ns=now_ns - place)
                if payload is None or key.identity in self._unwanted:
                    break
                payloads.append(payload)
        with self._lock:
            self._counts.num_fetched += len(payloads)
            self._counts.fetched_bytes += sum(len(payload) for payload in payloads)
        return payloads

    def store(self, pages: Sequence[StoredPage]) -> None:
        with self._changing:
            now_ns = self._clock_ns()
            for place, page in enumerate(pages):
                if self._is_paused(self._writing):
                    self._drop("down", num_pages=len(pages) - place)
                    return
                try:
                    # A nanosecond apart, so that the end of a sequence goes first, also by the
                    # times that the files keep.
                    self._store_one(page, used_ns=now_ns - place)
                except OSError as error:
                    self._fail(self._writing, error)
                    self._drop("full" if error.errno in _IS_FULL else "failed")

    def touch(self, identities: Sequence[bytes]) -> None:
        """These were used, wherever they were read from: pages of a sequence, the first first."""
        with self._changing:
            if self._is_paused(self._writing):
                return
            now_ns = self._clock_ns()
            try:
                for place, identity in enumerate(identities):
                    self._note_use(self._name(identity), used_ns=now_ns - place)
            except OSError as error:
                self._fail(self._writing, error)

    def forget(self, identities: Sequence[bytes] | None) -> None:
        """All: those that another process has written, too. What cannot be removed now is not read
        any more, and removed before the next page is stored."""
        with self._changing:
            try:
                if identities is None:
                    self._has_to_forget = True
                else:
                    self._unwanted.update(identities)
                self._remove_unwanted()
            except OSError as error:
                self._fail(self._writing, error)

    def other_roots(self) -> list[bytes]:
        """The other models that have or had pages in the folder."""
        try:
            return [root for root in self._folder.roots() if root != self._root]
        except OSError as error:
            self._fail(self._reading, error)
            return []

    def holds(self, root: bytes, identity: bytes) -> bool:
        """Whether there is such a page of this model or of another one."""
        try:
            return self._folder.look(file_name(root, identity)) is not None
        except OSError as error:
            self._fail(self._reading, error)
            return False

    def close(self) -> None:
        """Says that the model is served no longer. The pages stay."""
        with self._changing:
            self._folder.close()

    def _fetch_one(self, key: PageKey, *, used_ns: int) -> memoryview | None:
        name = self._name(key.identity)
        try:
            raw = self._folder.read(name, used_ns=used_ns)
            if raw is None:
                return None
            payload = decode_page(raw, key, root=self._root)
        except PageRejected as error:
            self._reject(name, error.reason)
            return None
        except OSError as error:
            self._fail(self._reading, error)
            return None
        self._succeed(self._reading)
        self._enter(FoundFile(name, len(raw), used_ns))
        return payload

    def _reject(self, name: str, reason: str) -> None:
        with self._lock:
            self._counts.reject(reason)
        with suppress(OSError):  # it is found again, and counted again
            self._remove(name)

    def _store_one(self, page: StoredPage, *, used_ns: int) -> None:
        name, num_bytes = self._name(page.key.identity), encoded_len(page.key, page.payload)
        if num_bytes > self._max_bytes:
            self._drop("too_large")
            return
        self._remove_unwanted()
        if self._note_use(name, used_ns=used_ns, num_bytes=num_bytes):
            return
        if self._unscanned_bytes is None or self._unscanned_bytes > RESCAN_SHARE * self._max_bytes:
            self._scan()
        self._make_room(num_bytes)
        self._write(name, encode_page(page.key, page.payload, root=self._root), used_ns=used_ns)
        self._unscanned_bytes = (self._unscanned_bytes or 0) + num_bytes
        self._succeed(self._writing)
        self._enter(FoundFile(name, num_bytes, used_ns))
        with self._lock:
            self._counts.num_stored += 1
            self._counts.stored_bytes += memoryview(page.payload).nbytes

    def _write(self, name: str, buffers: Sequence[bytes | memoryview], *, used_ns: int) -> None:
        try:
            self._folder.write(name, buffers, used_ns=used_ns)
            return
        except FileNotFoundError:
            pass  # another process has taken away a folder, or our draft for a dead writer's
        except OSError as error:
            # A disk that is smaller than our bound, or that others fill: the oldest pages go.
            num_bytes = sum(memoryview(buffer).nbytes for buffer in buffers)
            if error.errno not in _IS_FULL or not self._free(num_bytes):
                raise
        self._folder.write(name, buffers, used_ns=used_ns)

    def _note_use(self, name: str, *, used_ns: int, num_bytes: int | None = None) -> bool:
        """False where there is no such file, or none of that size."""
        found = self._folder.look(name)
        if found is None or num_bytes not in (None, found.num_bytes):
            return False
        if is_due(used_ns, noted_ns=found.used_ns):
            self._folder.touch(name, used_ns=used_ns)
        self._enter(FoundFile(name, found.num_bytes, used_ns))
        return True

    def _scan(self) -> None:
        self._folder.prepare()
        files = list(self._folder.walk())
        with self._lock:
            known = self._ledger
            self._ledger = FileLedger(
                (file.used_as(known.get(file.name)) for file in files),
                own_folder=folder_name(self._root),
            )
        self._unscanned_bytes = 0
        self._make_room(0)

    def _make_room(self, num_bytes: int) -> None:
        while self._ledger.num_bytes + num_bytes > self._max_bytes:
            self._evict_next()

    def _free(self, num_bytes: int) -> bool:
        """Whether files of that size together, or all that there were, have gone."""
        start_bytes = self._ledger.num_bytes
        while self._ledger.num_bytes > max(0, start_bytes - num_bytes):
            self._evict_next()
        return start_bytes > 0

    def _evict_next(self) -> None:
        with self._lock:
            file = self._ledger.next_out()
        if file is None:
            return
        found = self._folder.look(file.name)
        if found is not None and found.used_ns > file.used_ns:  # by another process
            with self._lock:
                self._ledger.touch(file.name, used_ns=found.used_ns)
        else:
            self._remove(file.name)

    def _remove_unwanted(self) -> None:
        if self._has_to_forget:
            self._forget_all()
            self._has_to_forget = False
        for identity in list(self._unwanted):
            self._remove(self._name(identity))
            self._unwanted.discard(identity)

    def _forget_all(self) -> None:
        own = folder_name(self._root) + "/"
        for file in list(self._folder.walk()):
            if file.name.startswith(own):
                self._remove(file.name)
        with self._lock:
            self._ledger.remove_own()

    def _remove(self, name: str) -> None:
        self._folder.remove(name)
        with self._lock:
            self._ledger.remove(name)

    def _enter(self, file: FoundFile) -> None:
        with self._lock:
            known = self._ledger.get(file.name)
            if known is not None and known.num_bytes == file.num_bytes:
                self._ledger.touch(file.name, used_ns=file.used_ns)
            else:
                self._ledger.add(file)

    def _name(self, identity: bytes) -> str:
        return file_name(self._root, identity)

    def _is_paused(self, pause: Pause) -> bool:
        with self._lock:
            return pause.is_on

    def _drop(self, reason: str, *, num_pages: int = 1) -> None:
        with self._lock:
            self._counts.drop(reason, num_pages=num_pages)

    def _fail(self, pause: Pause, error: OSError) -> None:
        with self._lock:
            is_first = pause.fail()
            self._counts.num_failures += 1
            self._counts.num_openings += is_first
        if is_first:
            what = "read" if pause is self._reading else "written"
            logger.warning(
                "the cache folder %s cannot be %s (%s): going on without it, to try again later",
                self._path,
                what,
                error.strerror or error,
            )

    def _succeed(self, pause: Pause) -> None:
        with self._lock:
            is_back = pause.succeed()
        if is_back:
            what = "read" if pause is self._reading else "written"
            logger.info("the cache folder %s can be %s again", self._path, what)
