"""One child of a bench, seen from the parent: start, ask, kill. Owned by one thread."""

import os
import select
import signal
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

# Covers the import of xgrammar on a busy machine, which no limit counts.
LOAD_LIMIT_S = 120.0
# All instances of one schema; the longest of MaskBench takes about a second.
WALK_LIMIT_S = 60.0
# How the child ends whose schema took too long; the limits hold inside of it.
DEADLINE_SIGNALS = frozenset({signal.SIGPROF, signal.SIGALRM})


class ChildDied(Exception):
    """The child ended by itself; the message says how."""


class DeadlinePassed(Exception):
    """The child worked for longer than it may."""


class BenchChild:
    """A running `python -m grammar.bench_worker`. After any error it is of no more use."""

    def __init__(self, setup: Setup) -> None:
        """Returns when the child is ready. Raises: GrammarError where it cannot be."""
        self._limits = setup.limits
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
            raise GrammarError(f"a child of the bench cannot be started: {error}") from error
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
        try:
            # For a child that does not run at all: the schema's limit holds inside of it.
            answer = self._receive(self._limits.wall_s + LOAD_LIMIT_S)
        except ChildDied as death:
            if -self._process.wait() in DEADLINE_SIGNALS:
                raise DeadlinePassed(f"more than {self._limits.cpu_s:g} s") from death
            raise
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
        deadline = time.monotonic() + limit_s
        length = int.from_bytes(self._read(LENGTH_BYTES, deadline), "big")
        return decode(self._read(length, deadline))

    def _read(self, num_bytes: int, deadline: float) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        parts: list[bytes] = []
        while num_bytes > 0:
            left_s = max(0.0, deadline - time.monotonic())
            if not select.select([descriptor], [], [], left_s)[0]:
                raise DeadlinePassed("no answer in time")
            part = os.read(descriptor, num_bytes)
            if not part:
                raise ChildDied(self._cause())
            parts.append(part)
            num_bytes -= len(part)
        return b"".join(parts)

    def _cause(self) -> str:
        code = self._process.wait()
        return f"killed by signal {-code}" if code < 0 else f"ended with code {code}"


def _environment() -> dict[str, str]:
    """Ours, with this package importable and one thread for the libraries."""
    root = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
