"""The operating system as page files see it, with failures and crashes where a test wants them."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from prefix_cache.tiers import page_folder

# What reads or changes the disk. Closing never fails here: what fails there was written.
CALLS = {
    "fstat", "link", "listdir", "makedirs", "mkdir", "open", "pread", "read", "replace",
    "rmdir", "scandir", "stat", "unlink", "utime", "writev",
}  # fmt: skip


class Crashed(BaseException):
    """The process ended here: nothing of it runs any more."""


class FaultyOs:
    """Everything of `os`; `before(name)` is asked before each call in CALLS and may raise."""

    def __init__(self, before: Callable[[str], None]) -> None:
        self._before = before

    def __getattr__(self, name: str) -> Any:
        value = getattr(os, name)
        if name not in CALLS:
            return value

        def call(*arguments: Any, **named: Any) -> Any:
            self._before(name)
            return value(*arguments, **named)

        return call


@contextmanager
def failing(
    errno_: int, *, names: set[str] = CALLS, first: int = 1, last: int | None = None
) -> Iterator[list[str]]:
    """Of the calls of these names those from number `first` to number `last` (None = all that
    follow) fail in that way. Gives the names that failed."""
    failed: list[str] = []
    num_calls = 0

    def before(name: str) -> None:
        nonlocal num_calls
        num_calls += name in names
        if name in names and first <= num_calls and (last is None or num_calls <= last):
            failed.append(name)
            raise OSError(errno_, os.strerror(errno_))

    with mock.patch.object(page_folder, "os", FaultyOs(before)):
        yield failed


@contextmanager
def crashing(*, at: int) -> Iterator[None]:
    """Call number `at` does not come to pass and neither does any after it, so that what would
    tidy up does not either."""
    num_calls = 0

    def before(_: str) -> None:
        nonlocal num_calls
        num_calls += 1
        if num_calls >= at:
            raise Crashed

    try:
        with mock.patch.object(page_folder, "os", FaultyOs(before)):
            yield
    except Crashed:
        pass
