"""One child of a probe, seen from the parent: start, ask, kill. Owned by one job at a time."""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from grammar.errors import ConstraintTooExpensive, GrammarError, UnsupportedConstraint
from grammar.matcher import Vocabulary
from grammar.probe_frames import (
    LENGTH_BYTES,
    Begun,
    Broken,
    Died,
    FromChild,
    Job,
    Ready,
    Setup,
    TimeLimits,
    Verdict,
    body_length,
    decode_from_child,
    encode,
)
from grammar.spec import ConstraintSpec

# Covers the import of xgrammar on a busy machine, which no limit of a job counts.
LOAD_LIMIT_S = 120.0
DROP_LIMIT_S = 2.0
# How a process ends that could not allocate (Rust aborts) or that the kernel chose to kill.
MEMORY_SIGNALS = frozenset({signal.SIGABRT, signal.SIGKILL})


class ChildGone(Exception):
    """The child died while it had nothing to do; the job is to be given to another."""


class TimeExceeded(ConstraintTooExpensive):
    """A limit of time, as opposed to memory: more of it may help."""


class ProbeProcess:
    """A running `python -m grammar.probe_worker`. Whoever gets an error from it that is not about
    the constraint kills it."""

    def __init__(self, process: asyncio.subprocess.Process, memory_limit_bytes: int) -> None:
        self._process = process
        self._memory_limit_bytes = memory_limit_bytes
        self._num_jobs = 0
        self._has_begun = False
        self._prefix: bytes | None = None

    @classmethod
    async def start(
        cls, vocabulary: Vocabulary, *, memory_limit_bytes: int, is_quick: bool
    ) -> "ProbeProcess":
        """Returns when the child is ready. Raises: GrammarError where it cannot be."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "grammar.probe_worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=_environment(),
        )
        child = cls(process, memory_limit_bytes)
        try:
            async with asyncio.timeout(LOAD_LIMIT_S):
                await child._send_setup(vocabulary, is_quick=is_quick)
                await child._expect_ready()
        except BaseException as error:
            await child.kill()
            if isinstance(error, TimeoutError | OSError | EOFError):
                raise GrammarError("the constraint checker cannot be started") from error
            raise
        return child

    @property
    def pid(self) -> int:
        """Also the id of the group of all its processes."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.returncode is None

    async def run(self, spec: ConstraintSpec, *, limits: TimeLimits) -> Verdict:
        """Raises: ChildGone where the child was dead before it took the job, else TimeExceeded or
        ConstraintTooExpensive past a limit, UnsupportedConstraint where the constraint crashed
        what worked on it; the child goes on after these three. GrammarError where nothing can be
        said."""
        self._num_jobs += 1
        self._has_begun = False
        try:
            await self._send(encode(Job(self._num_jobs, spec, limits)))
            await self._expect_begun()
        except (EOFError, OSError) as error:
            raise ChildGone from error
        try:
            # The limits hold inside the child; this is for one that does not run at all.
            async with asyncio.timeout(limits.wall_s + LOAD_LIMIT_S):
                verdict = await self._receive()
        except (TimeoutError, EOFError) as error:
            raise GrammarError("the constraint checker does not answer") from error
        if isinstance(verdict, Died):
            raise self._cause_of_death(verdict.signal, limits)
        if not isinstance(verdict, Verdict):
            raise GrammarError("the constraint checker is out of step")
        if verdict.out_of_memory:
            raise self._too_large()
        return verdict

    async def drop_job(self) -> bool:
        """Ends the job in work, after run() was cancelled; whether the child can take another."""
        try:
            async with asyncio.timeout(DROP_LIMIT_S):
                if not self._has_begun:  # half a job must not be left for the next fork to read
                    await self._expect_begun()
                self._process.terminate()
                while not isinstance(await self._receive(), Died):
                    pass  # a verdict that was on its way
        except (OSError, EOFError, TimeoutError, GrammarError, ChildGone):
            return False
        return True

    async def kill(self) -> None:
        """Ends the child and its fork at once and reaps it; idempotent."""
        if self.is_alive:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            with suppress(ProcessLookupError):  # it has no group before it runs
                self._process.kill()
        if self._process.stdin is not None:
            self._process.stdin.close()
        await self._process.wait()

    async def _send_setup(self, vocabulary: Vocabulary, *, is_quick: bool) -> None:
        setup = Setup(
            vocabulary.tokenizer_json,
            vocabulary.vocab_size,
            vocabulary.eos_token_ids,
            self._memory_limit_bytes,
            is_quick,
        )
        await self._send(encode(setup))

    async def _send(self, frame: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(frame)
        await self._process.stdin.drain()

    async def _receive(self) -> FromChild:
        """The next frame, wholly or, when cancelled, not at all."""
        assert self._process.stdout is not None
        if self._prefix is None:
            self._prefix = await self._process.stdout.readexactly(LENGTH_BYTES)
        body = await self._process.stdout.readexactly(body_length(self._prefix))
        self._prefix = None
        try:
            return decode_from_child(body)
        except msgspec.DecodeError as error:  # killed while it wrote
            raise GrammarError("the constraint checker is out of step") from error

    async def _expect_begun(self) -> None:
        if await self._receive() != Begun(self._num_jobs):
            raise ChildGone
        self._has_begun = True

    async def _expect_ready(self) -> None:
        message = await self._receive()
        if isinstance(message, Broken):
            raise GrammarError(message.reason)
        if not isinstance(message, Ready):
            raise GrammarError("the constraint checker is out of step")

    def _cause_of_death(self, number: int, limits: TimeLimits) -> GrammarError:
        if number == signal.SIGPROF:
            return TimeExceeded(f"{limits.cpu_s:g} s")
        if number == signal.SIGALRM:
            return TimeExceeded(f"{limits.wall_s:g} s on a busy machine")
        if number in MEMORY_SIGNALS:
            return self._too_large()
        return UnsupportedConstraint("the grammar engine crashed while compiling the constraint")

    def _too_large(self) -> ConstraintTooExpensive:
        return ConstraintTooExpensive(f"{self._memory_limit_bytes // 2**20} MiB of memory")


def _environment() -> dict[str, str]:
    """Ours, with this package importable and one thread for the libraries."""
    root = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
