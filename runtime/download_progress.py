"""One line on stderr that says how far a download is, in the shape that huggingface_hub expects of
a progress bar (tqdm's)."""

import sys
from types import TracebackType
from typing import Any

_MB = 1_000_000


class DownloadProgress:
    """Of one file. A terminal sees each percent in place; elsewhere each tenth is a line."""

    def __init__(
        self, *, total: int | None = None, initial: int = 0, desc: str = "", **_options: Any
    ) -> None:
        self._total = total or 0
        self._num_bytes = initial
        self._name = desc
        self._is_terminal = sys.stderr.isatty()
        self._shown = -1
        self._show()

    def __enter__(self) -> "DownloadProgress":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def update(self, num_bytes: float = 1) -> None:
        """More bytes have arrived."""
        self._num_bytes += int(num_bytes)
        self._show()

    def close(self) -> None:
        if self._is_terminal and self._shown >= 0:
            sys.stderr.write("\n")
        self._shown = -1

    def _show(self) -> None:
        if not self._total:
            return
        percent = min(100, 100 * self._num_bytes // self._total)
        if percent // (1 if self._is_terminal else 10) == self._shown:
            return
        self._shown = percent // (1 if self._is_terminal else 10)
        start, end = ("\r", "") if self._is_terminal else ("", "\n")
        sizes = f"{self._num_bytes / _MB:,.1f} of {self._total / _MB:,.1f} MB"
        sys.stderr.write(f"{start}fetching {self._name}: {sizes} ({percent} %){end}")
        sys.stderr.flush()
