"""One child of a bench, seen from the parent: start, ask, kill. Owned by one thread."""

import os
import select
import subprocess
import sys
import time
from pathlib import Path

from grammar.bench_file import BenchCase
from grammar.bench_frames import (
    LENGTH_BYTES,
    Broken,
    Compiled,
    Job,
    Message,
    Ready,
    Setup,
    Walked,
    decode,
    encode,
)
from grammar.errors import GrammarError

# Covers the import of xgrammar on a busy machine.
LOAD_LIMIT_S = 120.0
# All instances of one schema; the longest of MaskBench takes about a second.
WALK_LIMIT_S = 60.0
# A deadline counts processor time, so that a busy machine refuses nothing; but a child that
# sleeps for ever must end as well.
WALL_FACTOR = 5
POLL_S = 0.05


class ChildDied(Exception):
    """The child ended by itself; the message says how."""


class DeadlinePassed(Exception):
    """The child worked for longer than it may."""


class BenchChild:
    """A running `python -m grammar.bench_worker`. After any error it is of no more use."""

    def __init__(self, setup: Setup, *, limit_s: float) -> None:
        """Returns when the child is ready. Raises: GrammarError where it cannot be."""
        self._limit_s = limit_s
        self._process = subprocess.Popen(
            [sys.executable, "-m", "grammar.bench_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment(),
            start_new_session=True,
        )
        try:
            self._send(setup)
            answer = self._receive(LOAD_LIMIT_S)
        except (ChildDied, DeadlinePassed) as error:
            self.kill()
            raise GrammarError(f"the bench's child cannot be started: {error}") from error
        if not isinstance(answer, Ready):
            self.kill()
            raise GrammarError(answer.reason if isinstance(answer, Broken) else "out of step")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_ended(self) -> bool:
        return self._process.returncode is not None

    def compile(self, case: BenchCase, *, wants_notes: bool = False) -> Compiled:
        """Raises: DeadlinePassed, ChildDied."""
        self._send(Job(case, wants_notes))
        answer = self._receive(self._limit_s)
        assert isinstance(answer, Compiled)
        return answer

    def walked(self) -> Walked:
        """The second answer to the last case. Raises: DeadlinePassed, ChildDied."""
        answer = self._receive(WALK_LIMIT_S)
        assert isinstance(answer, Walked)
        return answer

    def interrupt(self) -> None:
        """Ends the child from another thread; its owner gets ChildDied."""
        self._process.kill()

    def kill(self) -> None:
        """Ends the child at once and reaps it; idempotent."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _send(self, message: Message) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(encode(message))
            self._process.stdin.flush()
        except OSError as error:
            raise ChildDied(self._cause()) from error

    def _receive(self, limit_s: float) -> Message:
        deadline = _Deadline(self._process.pid, limit_s)
        length = int.from_bytes(self._read(LENGTH_BYTES, deadline), "big")
        return decode(self._read(length, deadline))

    def _read(self, num_bytes: int, deadline: "_Deadline") -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        parts: list[bytes] = []
        while num_bytes > 0:
            if not select.select([descriptor], [], [], POLL_S)[0]:
                deadline.check()
                continue
            part = os.read(descriptor, num_bytes)
            if not part:
                raise ChildDied(self._cause())
            parts.append(part)
            num_bytes -= len(part)
        return b"".join(parts)

    def _cause(self) -> str:
        code = self._process.wait()
        return f"killed by signal {-code}" if code < 0 else f"ended with code {code}"


class _Deadline:
    """A limit of one process's processor time from now on."""

    def __init__(self, pid: int, limit_s: float) -> None:
        self._pid = pid
        self._limit_s = limit_s
        self._started = time.monotonic()
        self._used_before = _cpu_seconds(pid)

    def check(self) -> None:
        """Raises: DeadlinePassed."""
        elapsed = time.monotonic() - self._started
        used = _cpu_seconds(self._pid)
        if used is not None and self._used_before is not None:
            used -= self._used_before
        else:
            used = elapsed
        if used > self._limit_s or elapsed > WALL_FACTOR * self._limit_s:
            raise DeadlinePassed(f"more than {self._limit_s:g} s")


def _cpu_seconds(pid: int) -> float | None:
    """Processor time of a process so far; None where /proc does not say."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _environment() -> dict[str, str]:
    """Ours, with this package importable and one thread for the libraries."""
    root = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
