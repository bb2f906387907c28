"""Builds the native step for an instruction set, and finds what was built before.

A built library is a file whose name is a hash of the sources and the compiler's flags, so that a
changed source is built anew and two versions live side by side.
"""

import contextlib
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from runtime.cache_folder import cache_folder
from runtime.errors import RuntimePackageError
from runtime.native.instruction_sets import InstructionSet

_SOURCES = Path(__file__).parent
_ENTRY = "step.cpp"
# Contraction to fused multiply-add is what makes the float parts fast; -Wno-psabi: vectors wider
# than the target's registers are passed by functions that are all inlined.
_FLAGS = (
    "-std=c++20", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fPIC", "-shared", "-pthread",
    "-Wno-psabi",
)  # fmt: skip
BUILD_TIMEOUT_S = 600
_PART = ".part"  # ends the name of a folder in which is built


class BuildError(RuntimePackageError):
    """No compiler, or it failed; the message is one line."""


def library_path(instruction_set: InstructionSet) -> Path:
    """Where the library for these sources and this instruction set is or will be."""
    digest = hashlib.sha256()
    for source in sorted((*_SOURCES.glob("*.h"), *_SOURCES.glob("*.cpp"))):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    digest.update(" ".join((*_FLAGS, *instruction_set.compiler_flags)).encode())
    digest.update(platform.machine().encode())
    name = f"step-{instruction_set.name}-{digest.hexdigest()[:16]}.so"
    return cache_folder() / "native" / name


def find_compiler() -> str | None:
    """CXX from the environment, else g++ or c++, if it is there."""
    for name in (os.environ.get("CXX"), "g++", "c++"):
        if name and (path := shutil.which(name)):
            return path
    return None


def can_build(instruction_set: InstructionSet) -> bool:
    """Whether the library is there or there is a compiler to build it."""
    return library_path(instruction_set).exists() or find_compiler() is not None


def build_library(instruction_set: InstructionSet) -> Path:
    """The library, built if it is not there. Another process may build the same at the same time:
    each writes a file of its own and renames it. Raises: BuildError."""
    path = library_path(instruction_set)
    if path.exists():
        return path
    compiler = find_compiler()
    if compiler is None:
        raise BuildError("there is no C++ compiler (g++), so the native step cannot be built")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _build_folder(path.parent) as (folder, lock):
            target = folder / path.name
            _compile(compiler, instruction_set, target, lock)
            with target.open("rb") as file:  # a power failure leaves no half of it under its name
                os.fsync(file.fileno())
            target.rename(path)
    except OSError as error:
        raise BuildError(f"{path.parent}: cannot be written ({error.strerror or error})") from None
    return path


@contextlib.contextmanager
def _build_folder(parent: Path) -> Iterator[tuple[Path, int]]:
    """A folder of our own, and the descriptor that holds its lock. Raises: OSError."""
    with contextlib.ExitStack() as stack:
        with _locked(parent):  # a new folder is locked before another builder looks at it
            _remove_leftovers(parent)
            folder = stack.enter_context(tempfile.TemporaryDirectory(suffix=_PART, dir=parent))
            lock = stack.enter_context(_locked(Path(folder)))
        yield Path(folder), lock


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _remove_leftovers(parent: Path) -> None:
    """Folders of builders that were killed, once their compilers have ended too: those inherited
    the lock."""
    for folder in parent.glob(f"*{_PART}"):
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(descriptor)


def _compile(compiler: str, instruction_set: InstructionSet, target: Path, lock: int) -> None:
    flags = (*_FLAGS, *instruction_set.compiler_flags)
    command = [compiler, *flags, "-o", str(target), str(_SOURCES / _ENTRY)]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
            pass_fds=(lock,),
        )
    except subprocess.TimeoutExpired:
        raise BuildError(f"{compiler} took more than {BUILD_TIMEOUT_S} s") from None
    except OSError as error:
        raise BuildError(f"{compiler} failed: {error.strerror or error}") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        first_error = next((line for line in lines if "error" in line), lines[-1])
        raise BuildError(f"{compiler} failed: {first_error[:300]}")
    if not target.exists():
        raise BuildError(f"{compiler} failed: wrote nothing")
