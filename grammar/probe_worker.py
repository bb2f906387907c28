"""The killable child that tries constraints out: `python -m grammar.probe_worker`.

It reads frames from stdin and writes frames to stdout, one job at a time, and ends with its
parent. A hang, a crash or hunger for memory costs this process only.
"""

import ctypes
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np

from grammar.engine_choice import prepare_with
from grammar.engines import load_engine
from grammar.errors import GrammarError, UnsupportedConstraint
from grammar.matcher import GrammarEngine, Vocabulary, mask_words
from grammar.probe_frames import (
    LENGTH_BYTES,
    Broken,
    FromChild,
    Job,
    Ready,
    Setup,
    Verdict,
    body_length,
    decode_to_child,
    encode,
)
from grammar.spec import ConstraintSpec, EngineName, PreparedConstraint

PR_SET_PDEATHSIG = 1
IDLE_NICENESS = 19
MAX_REASON_CHARS = 2_000


class ProbeWorker:
    """The child's state: one vocabulary, the engines loaded for it so far."""

    def __init__(self, setup: Setup) -> None:
        self._vocabulary = Vocabulary(
            setup.tokenizer_json, setup.vocab_size, tuple(setup.eos_token_ids)
        )
        self._memory_limit_bytes = setup.memory_limit_bytes
        self._engines: dict[EngineName, GrammarEngine] = {}

    def engine(self, name: EngineName) -> GrammarEngine:
        if name not in self._engines:
            self._engines[name] = load_engine(name, self._vocabulary)
        return self._engines[name]

    def try_out(self, spec: ConstraintSpec) -> Verdict:
        """Compiles, and fills the first mask: both can take long, both can fail."""
        started = time.perf_counter()
        try:
            with _limited_memory(self._memory_limit_bytes), _warnings_as_errors():
                prepared = self._compile(spec)
        except UnsupportedConstraint as error:
            return Verdict(
                _elapsed_ms(started),
                reason=error.reason[:MAX_REASON_CHARS],
                pointer=error.pointer,
                keyword=error.keyword,
            )
        except MemoryError:
            return Verdict(_elapsed_ms(started), reason="out of memory", out_of_memory=True)
        except BaseException as error:  # a panic of a Rust library is no Exception
            reason = f"the engine failed: {error}"[:MAX_REASON_CHARS]
            return Verdict(_elapsed_ms(started), reason=reason)
        return Verdict(_elapsed_ms(started), prepared)

    def _compile(self, spec: ConstraintSpec) -> PreparedConstraint:
        prepared = prepare_with(self.engine, spec)
        matcher = self.engine(prepared.engine).build(prepared)
        row = np.zeros(mask_words(self._vocabulary.vocab_size), dtype=np.int32)
        matcher.fill(row)
        if spec.kind != "regex" and matcher.is_accepting():
            raise UnsupportedConstraint("no output satisfies the constraint")
        return prepared


def main() -> None:
    """Serves frames until stdin ends."""
    frames_in, frames_out = _private_streams()
    _die_with_parent()
    setup = _read(frames_in)
    if not isinstance(setup, Setup):
        return
    worker = ProbeWorker(setup)
    if not _announce(worker, "llguidance", frames_out):
        return
    os.nice(IDLE_NICENESS)
    while isinstance(job := _read(frames_in), Job):
        engine = "llguidance" if job.spec.engine == "auto" else job.spec.engine
        if _announce(worker, engine, frames_out):
            _write(frames_out, worker.try_out(job.spec))


def _announce(worker: ProbeWorker, engine: EngineName, frames_out: BinaryIO) -> bool:
    try:
        worker.engine(engine)
    except (GrammarError, ImportError) as error:
        _write(frames_out, Broken(str(error)[:MAX_REASON_CHARS]))
        return False
    _write(frames_out, Ready())
    return True


def _private_streams() -> tuple[BinaryIO, BinaryIO]:
    """Our frames on descriptors of their own, so that nothing a library prints mixes with them."""
    frames_in = os.fdopen(os.dup(0), "rb")
    frames_out = os.fdopen(os.dup(1), "wb")
    with Path(os.devnull).open("r+b") as nowhere:
        os.dup2(nowhere.fileno(), 0)
        os.dup2(nowhere.fileno(), 1)
    return frames_in, frames_out


def _die_with_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _read(frames_in: BinaryIO) -> Setup | Job | None:
    prefix = frames_in.read(LENGTH_BYTES)
    if len(prefix) < LENGTH_BYTES:
        return None
    return decode_to_child(frames_in.read(body_length(prefix)))


def _write(frames_out: BinaryIO, message: FromChild) -> None:
    frames_out.write(encode(message))
    frames_out.flush()


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
