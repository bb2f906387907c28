"""What `radixgate bench` says on standard error while it runs: a line that is rewritten on a
terminal, a line now and then elsewhere. Standard output is for the report alone.
"""

import shutil
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

from gateway.terminal_text import harmless
from telemetry.bench_run import Progress

REWRITE_S, REPEAT_S = 0.1, 10.0
_BAR_WIDTH = 20
_MAX_LABEL_CHARS = 24
_MIN_WIDTH = 20


class ProgressLine:
    """`show` is called as often as there is news. A stream that cannot be written to is left
    alone: a run does not end with its watcher."""

    def __init__(
        self,
        stream: TextIO | None,
        *,
        is_terminal: bool,
        num_columns: Callable[[], int] = lambda: shutil.get_terminal_size().columns,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._is_terminal = is_terminal
        self._num_columns = num_columns
        self._now_s = now_s
        self._period_s = REWRITE_S if is_terminal else REPEAT_S
        # On a terminal the first news is shown at once.
        self._next_s = now_s() + (0.0 if is_terminal else REPEAT_S)
        self._num_shown = 0

    @classmethod
    def on_stderr(cls, *, is_quiet: bool) -> Self:
        """Of the process; it says nothing where it shall be quiet."""
        stream = None if is_quiet else sys.stderr
        return cls(stream, is_terminal=stream is not None and stream.isatty())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def show(self, progress: Progress) -> None:
        now_s = self._now_s()
        if self._stream is None or now_s < self._next_s:
            return
        self._next_s = now_s + self._period_s
        line = progress_text(progress)
        if self._is_terminal:
            self._rewrite(line[: max(_MIN_WIDTH, self._num_columns() - 1)])
        else:
            self._write(f"{line}\n")

    def close(self) -> None:
        """Takes the line off the terminal."""
        if self._num_shown:
            self._rewrite("")
            self._write("\r")

    def _rewrite(self, line: str) -> None:
        """Blanks cover what a longer line left; no escape sequence is needed."""
        self._write(f"\r{line}{' ' * max(0, self._num_shown - len(line))}")
        self._num_shown = len(line)

    def _write(self, text: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # nobody reads it any more, or it is closed
            self._stream = None


def progress_text(progress: Progress) -> str:
    """One line in ASCII: what is measured, how far, how fast, and how much longer it takes."""
    one = progress
    label = harmless(one.label, is_plain=True)[:_MAX_LABEL_CHARS]
    stage = "warm-up" if one.is_warm_up else f"round {one.round_number}/{one.num_rounds}"
    filled = round(min(max(one.share, 0.0), 1.0) * _BAR_WIDTH)
    bar = "#" * filled + "." * (_BAR_WIDTH - filled)
    done = f"{one.num_done}" if one.total is None else f"{one.num_done}/{one.total}"
    rate = one.num_done / one.elapsed_s if one.elapsed_s > 0 else 0.0
    return (
        f"{label}, {one.level.text}, {stage} [{bar}] {done} done, {one.elapsed_s:.0f} s, "
        f"{rate:.1f}/s, {one.num_in_flight} in flight, {one.num_failed} failed{_left(one)}"
    )


def _left(progress: Progress) -> str:
    """What is left at the pace so far."""
    if not 0 < progress.share < 1 or progress.elapsed_s <= 0:
        return ""
    return f", {progress.elapsed_s * (1 - progress.share) / progress.share:.0f} s left"
