"""Keeps the accepted keys as the key file says.

It looks at the file every second, and reads it again once it has changed and then kept still for
one, so that nothing half written counts.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gateway.auth import ApiKeys, DuplicateKey
from gateway.key_file import KeyEntry, KeyFileError, read_key_file

POLL_S = 1.0
_Stamp = tuple[int, ...] | None
_logger = logging.getLogger(__name__)


class KeyFileWatch:
    """A service. What cannot be used is said once in the log, and the keys stay as they were."""

    def __init__(
        self,
        path: Path,
        *,
        on_reload: Callable[[bool], None] = lambda _: None,
        poll_s: float = POLL_S,
    ) -> None:
        """`on_reload` is told of each new reading whether the file could be used."""
        self._path = path
        self._on_reload = on_reload
        self._poll_s = poll_s
        self._keys: ApiKeys | None = None
        self._read: _Stamp = None
        self._seen: _Stamp = None
        self._task: asyncio.Task[None] | None = None

    def open(self, keys: tuple[str, ...], *, secret: bytes) -> ApiKeys:
        """The keys as they are now, which start() keeps up to date. `keys` are those that are
        accepted beside the file.

        Raises: KeyFileError.
        """
        self._read = self._seen = _stamp(self._path)
        entries = read_key_file(self._path)
        try:
            self._keys = ApiKeys(keys, secret=secret, entries=entries)
        except DuplicateKey as error:
            raise KeyFileError(f"{self._path}, {error}") from None
        return self._keys

    async def start(self) -> None:
        self._task = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def check(self) -> None:
        """One look at the file."""
        before, self._seen = self._seen, await asyncio.to_thread(_stamp, self._path)
        if self._seen == self._read or self._seen != before:
            return
        self._read = self._seen  # whatever comes of it: a broken file is told once
        try:
            entries = await asyncio.to_thread(read_key_file, self._path)
            self._replace(entries)
        except KeyFileError as error:
            _logger.error("the key file cannot be used, the keys stay as they were: %s", error)
            self._on_reload(False)
        else:
            num_tenants = len({entry.tenant for entry in entries})
            _logger.info("key file read: %d keys of %d tenants", len(entries), num_tenants)
            self._on_reload(True)

    def _replace(self, entries: tuple[KeyEntry, ...]) -> None:
        assert self._keys is not None, "open() comes first"
        try:
            self._keys.replace(entries)
        except DuplicateKey as error:
            raise KeyFileError(f"{self._path}, {error}") from None

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._poll_s)
            try:
                await self.check()
            except Exception:
                _logger.exception("the key file could not be looked at")
                self._on_reload(False)


def _stamp(path: Path) -> _Stamp:
    """What changes when the file does; None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
