"""The killable child that tries constraints out: `python -m grammar.probe_worker`.

It loads once and forks; the fork reads jobs from stdin and writes frames to stdout, one job at a
time, and a hang, a crash or hunger for memory costs the fork only: another is there within
milliseconds, also after a SIGTERM, which says that nobody waits for the job any more. All of them
end with their parent.
"""

import ctypes
import gc
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO

import numpy as np

from grammar.engine_choice import prepare_with
from grammar.engines import load_engine
from grammar.errors import GrammarError, UnsupportedConstraint
from grammar.matcher import GrammarEngine, Vocabulary, mask_words
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
    decode_to_child,
    encode,
)
from grammar.spec import ConstraintSpec, EngineName, PreparedConstraint

PR_SET_PDEATHSIG = 1
LOWEST_NICENESS = 19
MAX_REASON_CHARS = 2_000
# A grammar that is sent to a runtime with each request of it.
MAX_GRAMMAR_CHARS = 16 * 1024 * 1024


class _EngineMissing(BaseException):
    """A job needs a library that is not loaded yet, which its limits shall not count. Not an
    Exception, so that nothing on the way takes it for a refusal."""

    def __init__(self, name: EngineName) -> None:
        super().__init__(name)
        self.name = name


class ProbeWorker:
    """The child's state: one vocabulary, the engines loaded for it so far."""

    def __init__(self, setup: Setup) -> None:
        self._vocabulary = Vocabulary(
            setup.tokenizer_json, setup.vocab_size, tuple(setup.eos_token_ids)
        )
        self._memory_limit_bytes = setup.memory_limit_bytes
        self._engines: dict[EngineName, GrammarEngine] = {}

    def engine(self, name: EngineName) -> GrammarEngine:
        """Raises: GrammarError, ImportError where it cannot be loaded."""
        if name not in self._engines:
            self._engines[name] = load_engine(name, self._vocabulary)
        return self._engines[name]

    def try_out(self, spec: ConstraintSpec, limits: TimeLimits | None = None) -> Verdict:
        """Compiles, and fills the first mask: both can take long, both can fail. Past its limits
        the process ends by a signal."""
        while True:
            try:
                return self._attempt(spec, limits)
            except _EngineMissing as missing:
                try:
                    self.engine(missing.name)
                except (GrammarError, ImportError) as error:
                    reason = f"the engine {missing.name} cannot be loaded: {error}"
                    return Verdict(0.0, reason=reason[:MAX_REASON_CHARS])

    def _attempt(self, spec: ConstraintSpec, limits: TimeLimits | None) -> Verdict:
        started = time.perf_counter()
        timers = nullcontext() if limits is None else _limited_time(limits)
        try:
            with timers, _limited_memory(self._memory_limit_bytes):
                prepared = self._compile(spec)
        except _EngineMissing:
            raise
        except UnsupportedConstraint as error:
            return Verdict(
                _elapsed_ms(started),
                reason=error.reason[:MAX_REASON_CHARS],
                pointer=error.pointer,
                keyword=error.keyword,
            )
        except MemoryError:
            return Verdict(_elapsed_ms(started), reason="out of memory", out_of_memory=True)
        except RecursionError:
            return Verdict(_elapsed_ms(started), reason="it is nested too deeply")
        except BaseException as error:  # a panic of a Rust library is no Exception
            reason = f"the engine failed: {error}"[:MAX_REASON_CHARS]
            return Verdict(_elapsed_ms(started), reason=reason)
        return Verdict(_elapsed_ms(started), prepared)

    def _compile(self, spec: ConstraintSpec) -> PreparedConstraint:
        prepared = prepare_with(self._loaded_engine, spec)
        if len(prepared.grammar) > MAX_GRAMMAR_CHARS:
            raise MemoryError
        engine = self._loaded_engine(prepared.engine)
        with _warnings_as_errors() if prepared.engine == "xgrammar" else nullcontext():
            matcher = engine.build(prepared)
        row = np.zeros(mask_words(self._vocabulary.vocab_size), dtype=np.int32)
        matcher.fill(row)
        if spec.kind.startswith("json_") and matcher.is_accepting():
            raise UnsupportedConstraint("no output satisfies the constraint")
        return prepared

    def _loaded_engine(self, name: EngineName) -> GrammarEngine:
        if name not in self._engines:
            raise _EngineMissing(name)
        return self._engines[name]


def main() -> None:
    """Serves frames until stdin ends."""
    # A group of its own, so that its forks are killed with it, and no session: Linux shares the
    # processor out by sessions first, and an idle one is worth as much as the server's.
    os.setpgid(0, 0)
    frames_in, frames_out = _private_streams()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _die_with_parent()
    setup = _read(frames_in)
    if not isinstance(setup, Setup):
        return
    if not setup.is_quick:
        os.nice(LOWEST_NICENESS)
    worker = ProbeWorker(setup)
    try:
        worker.engine("llguidance")
    except (GrammarError, ImportError) as error:
        _write(frames_out, Broken(str(error)[:MAX_REASON_CHARS]))
        return
    gc.collect()
    gc.freeze()  # a fork shares what is loaded as long as nobody writes to it
    _write(frames_out, Ready())
    lower_priority = _lower_priority if setup.is_quick else _become_idle
    while (status := _serve_in_fork(worker, frames_in, frames_out, lower_priority)) != 0:
        _write(frames_out, Died(os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0))


def _serve_in_fork(
    worker: ProbeWorker,
    frames_in: BinaryIO,
    frames_out: BinaryIO,
    lower_priority: Callable[[], None],
) -> int:
    """How the fork ended: 0 when there are no more jobs."""
    pid = os.fork()
    if pid:
        signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGKILL))
        status = os.waitpid(pid, 0)[1]
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        return status
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _die_with_parent()
        lower_priority()
        while isinstance(job := _read(frames_in), Job):
            _write(frames_out, Begun(job.number))
            _write(frames_out, worker.try_out(job.spec, job.limits))
    except BaseException:
        os._exit(1)
    os._exit(0)


def _private_streams() -> tuple[BinaryIO, BinaryIO]:
    """Our frames on descriptors of their own, so that nothing a library prints mixes with them.
    Unbuffered: what one fork has not read is there for the next."""
    frames_in = os.fdopen(os.dup(0), "rb", buffering=0)
    frames_out = os.fdopen(os.dup(1), "wb")
    with Path(os.devnull).open("r+b") as nowhere:
        os.dup2(nowhere.fileno(), 0)
        os.dup2(nowhere.fileno(), 1)
    return frames_in, frames_out


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _lower_priority() -> None:
    os.nice(LOWEST_NICENESS)


def _become_idle() -> None:
    """To what takes no time from a running step; niceness alone makes its slowest ones longer."""
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except (AttributeError, OSError):  # not Linux, or a sandbox that forbids it
        os.nice(LOWEST_NICENESS)


def _read(frames_in: BinaryIO) -> Setup | Job | None:
    prefix = _read_exactly(frames_in, LENGTH_BYTES)
    if prefix is None:
        return None
    body = _read_exactly(frames_in, body_length(prefix))
    return None if body is None else decode_to_child(body)


def _read_exactly(frames_in: BinaryIO, num_bytes: int) -> bytes | None:
    """None at the end of the input."""
    parts: list[bytes] = []
    while num_bytes:
        part = frames_in.read(num_bytes)
        if not part:
            return None
        parts.append(part)
        num_bytes -= len(part)
    return b"".join(parts)


def _write(frames_out: BinaryIO, message: FromChild) -> None:
    frames_out.write(encode(message))
    frames_out.flush()


@contextmanager
def _limited_time(limits: TimeLimits) -> Iterator[None]:
    """Past a limit the process is killed, wherever it is: by SIGPROF or SIGALRM."""
    signal.setitimer(signal.ITIMER_PROF, limits.cpu_s)
    signal.setitimer(signal.ITIMER_REAL, limits.wall_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def _limited_memory(limit_bytes: int) -> Iterator[None]:
    """Bounds what a job may allocate on top of what the process already holds."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (_data_bytes() + limit_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _data_bytes() -> int:
    """Private writable memory of this process; 0 where /proc does not say."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    sizes = [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:")]
    return sizes[0] if sizes else 0


@contextmanager
def _warnings_as_errors() -> Iterator[None]:
    """xgrammar reports what it ignores on the C++ standard error only."""
    with tempfile.TemporaryFile() as captured:
        saved = os.dup(2)
        os.dup2(captured.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)
        captured.seek(0)
        printed = captured.read(MAX_REASON_CHARS).decode(errors="replace")
    if "Warning" in printed:
        raise UnsupportedConstraint(printed.split("Warning:", 1)[-1].strip())


def _elapsed_ms(started: float) -> float:
    return (time.perf_counter() - started) * 1e3


if __name__ == "__main__":
    main()
