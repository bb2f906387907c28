"""Files of pages in one folder that several processes and several models share.

It owns names, atomic writes and the walk over all files; what is kept and what goes is DiskTier's
business. Nothing is synced: after a power loss a page's checksum decides.
"""

import errno
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from prefix_cache.tiers.page_file import FIXED_BYTES, PageRejected, total_len

# folder / 32 digits of the root / 2 digits of the identity / identity
#                                / root     the whole root; locked by each process that serves it
#                                / *.tmp    a page that is being written; locked by its writer
_MARKER = "root"
_SUFFIX = ".tmp"
_ROOT_NAME = re.compile(r"[0-9a-f]{32}")
_SHELF_NAME = re.compile(r"[0-9a-f]{2}")
_FILE_NAME = re.compile(r"[0-9a-f]{64}")

_FOLDER_MODE = 0o700
_FILE_MODE = 0o600
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK a pipe that lies there would be waited for.
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

# What a name leads to that is no file of ours: a link, a folder, a socket, something locked away.
_NO_FILE = {errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.EACCES, errno.EPERM}
# The use of a page is written down at most this often.
TOUCH_NS = 60 * 10**9


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file of a page as a walk or a look finds it. `is_abandoned`: no process serves its root."""

    name: str
    num_bytes: int
    used_ns: int
    is_abandoned: bool = False

    def used_as(self, known: "FoundFile | None") -> "FoundFile":
        """With the later of both times: not every use is written to the disk."""
        if known is None or known.used_ns <= self.used_ns:
            return self
        return FoundFile(self.name, self.num_bytes, known.used_ns, self.is_abandoned)


def file_name(root: bytes, identity: bytes) -> str:
    """Where a page lies in the folder."""
    digits = identity.hex()
    return f"{folder_name(root)}/{digits[:2]}/{digits}"


def folder_name(root: bytes) -> str:
    """Where the pages of a root lie in the folder."""
    return root.hex()[:32]


def is_due(used_ns: int, *, noted_ns: int) -> bool:
    """Whether a use is to be written down. A time far in the future is set right by it."""
    return abs(used_ns - noted_ns) >= TOUCH_NS


class PageFolder:
    """The folder at `path`, as the server of `root` sees it. Methods raise OSError for what is
    wrong with the disk; that a file or a folder is not there is no error."""

    def __init__(self, path: Path, *, root: bytes) -> None:
        self._path = path
        self._root = root
        self._own = folder_name(root)
        self._lock: int | None = None

    def prepare(self) -> None:
        """Makes the folders, and tells other processes that the root is served until `close`, or
        until this process is no more."""
        os.makedirs(self._path, _FOLDER_MODE, exist_ok=True)
        with _opened(self._path) as top, _subfolder(self._own, top, create=True) as own:
            self._mark(own)

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def look(self, name: str) -> FoundFile | None:
        """None where there is no such file."""
        with suppress(FileNotFoundError), self._shelf(name) as (shelf, file):
            found = os.stat(file, dir_fd=shelf, follow_symlinks=False)
            if stat.S_ISREG(found.st_mode):
                return FoundFile(name, found.st_size, found.st_mtime_ns)
        return None

    def count_leading(self, names: Sequence[str]) -> int:
        """How many of the first names there are. No folder is opened for it: a link may mislead
        it, but not what reads."""
        count = 0
        with suppress(FileNotFoundError, NotADirectoryError), _opened(self._path) as top:
            for name in names:
                if not stat.S_ISREG(os.stat(name, dir_fd=top, follow_symlinks=False).st_mode):
                    break
                count += 1
        return count

    def read(self, name: str, *, used_ns: int) -> bytes | None:
        """All of a file, whose use is noted; None where there is none. Raises: PageRejected for
        what is no file, or has not the length that it claims."""
        with suppress(FileNotFoundError), self._shelf(name) as (shelf, file):
            descriptor = _open_page(file, shelf)
            try:
                return _read_whole(descriptor, used_ns=used_ns)
            finally:
                os.close(descriptor)
        return None

    def write(self, name: str, buffers: Sequence[bytes | memoryview], *, used_ns: int) -> None:
        """The file is there with all its bytes, or not at all, whenever the process ends."""
        os.makedirs(self._path, _FOLDER_MODE, exist_ok=True)
        with (
            _opened(self._path) as top,
            _subfolder(self._own, top, create=True) as own,
            _subfolder(name.split("/")[1], own, create=True) as shelf,
        ):
            self._mark(own)
            draft = secrets.token_hex(8) + _SUFFIX
            descriptor = os.open(draft, _CREATE_FILE, _FILE_MODE, dir_fd=own)
            try:
                _lock(descriptor)
                _write_whole(descriptor, buffers)
                os.utime(descriptor, ns=(used_ns, used_ns))
                os.replace(draft, name.split("/")[2], src_dir_fd=own, dst_dir_fd=shelf)
            except OSError:
                with suppress(OSError):
                    os.unlink(draft, dir_fd=own)
                raise
            finally:
                os.close(descriptor)

    def touch(self, name: str, *, used_ns: int) -> None:
        """Notes the use of a page for other processes and later ones."""
        with suppress(FileNotFoundError), self._shelf(name) as (shelf, file):
            os.utime(file, ns=(used_ns, used_ns), dir_fd=shelf, follow_symlinks=False)

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError), self._shelf(name) as (shelf, file):
            os.unlink(file, dir_fd=shelf)

    def walk(self) -> Iterator[FoundFile]:
        """All pages of all roots. On its way it removes what dead writers have left, and the
        folders of roots that have no page and nobody who serves them."""
        with _opened(self._path) as top:
            for root_name in _names(top, _ROOT_NAME):
                # Another user's server may keep its own to itself: nothing that we could bound.
                accepted = FileNotFoundError if root_name == self._own else OSError
                with suppress(accepted), _subfolder(root_name, top) as folder:
                    yield from self._walk_root(root_name, folder, top=top)

    def roots(self) -> list[bytes]:
        """The roots of all models that have or had pages here."""
        found: list[bytes] = []
        with suppress(FileNotFoundError), _opened(self._path) as top:
            for root_name in _names(top, _ROOT_NAME):
                with suppress(OSError, ValueError), _subfolder(root_name, top) as folder:
                    root = bytes.fromhex(_read_marker(folder))
                    if folder_name(root) == root_name:
                        found.append(root)
        return found

    def _walk_root(self, root_name: str, folder: int, *, top: int) -> Iterator[FoundFile]:
        is_abandoned = root_name != self._own and not _is_served(folder)
        is_empty = True
        for shelf_name in _names(folder, _SHELF_NAME):
            with suppress(FileNotFoundError), _subfolder(shelf_name, folder) as shelf:
                for name, num_bytes, used_ns in _files(shelf):
                    is_empty = False
                    path = f"{root_name}/{shelf_name}/{name}"
                    yield FoundFile(path, num_bytes, used_ns, is_abandoned)
        _remove_dead_drafts(folder)
        if is_abandoned and is_empty:
            _remove_root(root_name, folder, top=top)

    @contextmanager
    def _shelf(self, name: str) -> Iterator[tuple[int, str]]:
        """The folder that a file lies in, opened step by step, so that no link leads elsewhere.
        Raises: FileNotFoundError where a step leads to no folder."""
        root_name, shelf_name, file = name.split("/")
        with (
            _opened(self._path) as top,
            _subfolder(root_name, top) as folder,
            _subfolder(shelf_name, folder) as shelf,
        ):
            yield shelf, file

    def _mark(self, own: int) -> None:
        """What fails here costs a lesser place in the order in which pages go, and no page."""
        if self._lock is not None and os.fstat(self._lock).st_nlink:
            return
        self.close()
        with suppress(OSError):
            self._lock = _open_marker(own, self._root)
            fcntl.flock(self._lock, fcntl.LOCK_SH | fcntl.LOCK_NB)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _subfolder(name: str, parent: int, *, create: bool = False) -> Iterator[int]:
    """Raises: FileNotFoundError where it is no folder; with `create` it is made one."""
    try:
        descriptor = _open_folder(name, parent)
    except FileNotFoundError:
        if not create:
            raise
        with suppress(OSError):  # a file or a link of that name
            os.unlink(name, dir_fd=parent)
        with suppress(FileExistsError):
            os.mkdir(name, _FOLDER_MODE, dir_fd=parent)
        descriptor = _open_folder(name, parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _open_folder(name: str, parent: int) -> int:
    try:
        return os.open(name, _OPEN_FOLDER, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name) from None
        raise


def _names(folder: int, pattern: re.Pattern[str]) -> list[str]:
    return [name for name in os.listdir(folder) if pattern.fullmatch(name)]


def _files(shelf: int) -> Iterator[tuple[str, int, int]]:
    """Name, size and time of last use of the pages in a folder."""
    with os.scandir(shelf) as entries:
        for entry in entries:
            if not _FILE_NAME.fullmatch(entry.name):
                continue
            with suppress(FileNotFoundError):
                found = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(found.st_mode):
                    yield entry.name, found.st_size, found.st_mtime_ns


def _open_page(file: str, shelf: int) -> int:
    try:
        return os.open(file, _OPEN_FILE, dir_fd=shelf)
    except OSError as error:
        if error.errno in _NO_FILE:
            raise PageRejected("unreadable") from None
        raise


def _read_whole(descriptor: int, *, used_ns: int) -> bytes:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise PageRejected("unreadable")
    # Only then: something large may lie there.
    if total_len(os.pread(descriptor, FIXED_BYTES, 0)) != found.st_size:
        raise PageRejected("length")
    if is_due(used_ns, noted_ns=found.st_mtime_ns):
        with suppress(OSError):  # on a disk that can only be read
            os.utime(descriptor, ns=(used_ns, used_ns))
    return os.read(descriptor, found.st_size)


def _write_whole(descriptor: int, buffers: Sequence[bytes | memoryview]) -> None:
    views = [memoryview(buffer).cast("B") for buffer in buffers]
    while views:
        num_written = os.writev(descriptor, views)
        while views and num_written >= len(views[0]):
            num_written -= len(views.pop(0))
        if views:
            views[0] = views[0][num_written:]


def _open_marker(own: int, root: bytes) -> int:
    try:
        return os.open(_MARKER, _OPEN_FILE, dir_fd=own)
    except FileNotFoundError:
        draft = secrets.token_hex(8) + _SUFFIX
        descriptor = os.open(draft, _CREATE_FILE, _FILE_MODE, dir_fd=own)
        try:
            _write_whole(descriptor, [root.hex().encode()])
        finally:
            os.close(descriptor)
        os.replace(draft, _MARKER, src_dir_fd=own, dst_dir_fd=own)
        return os.open(_MARKER, _OPEN_FILE, dir_fd=own)


def _read_marker(folder: int) -> str:
    descriptor = os.open(_MARKER, _OPEN_FILE, dir_fd=folder)
    try:
        return os.read(descriptor, 64).decode("ascii")
    finally:
        os.close(descriptor)


def _is_served(folder: int) -> bool:
    """Whether a process holds the lock of the root's marker."""
    try:
        descriptor = os.open(_MARKER, _OPEN_FILE, dir_fd=folder)
    except OSError:
        return False
    try:
        return not _lock(descriptor)
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """False where another process has it. Where a file system has no locks all are had."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _remove_dead_drafts(folder: int) -> None:
    for name in os.listdir(folder):
        if name.endswith(_SUFFIX):
            with suppress(OSError):
                descriptor = os.open(name, _OPEN_FILE, dir_fd=folder)
                try:
                    if _lock(descriptor):
                        os.unlink(name, dir_fd=folder)
                finally:
                    os.close(descriptor)


def _remove_root(root_name: str, folder: int, *, top: int) -> None:
    """Only what is empty goes: a server that starts just now makes it anew."""
    with suppress(OSError):
        for shelf_name in _names(folder, _SHELF_NAME):
            os.rmdir(shelf_name, dir_fd=folder)
        os.unlink(_MARKER, dir_fd=folder)
        os.rmdir(root_name, dir_fd=top)
