"""The native step under the compiler's sanitizers: no access outside a buffer, no undefined result,
no race between its threads. Each program is a random walk that ends with 0 where nothing is found.
"""

import functools
import os
import subprocess
from pathlib import Path

import pytest

from runtime.native.build import find_compiler
from tests.native_library import HAS_COMPILER, NO_COMPILER, runnable_sets

PROGRAMS = Path(__file__).parent.parent / "sanitized"
MEMORY, THREADS = "address,undefined", "thread"
FLAGS = ("-std=c++20", "-O1", "-g", "-ffp-contract=fast", "-fno-math-errno", "-pthread")

pytestmark = [
    pytest.mark.skipif(not HAS_COMPILER, reason=NO_COMPILER),
    pytest.mark.timeout(300),  # compiling takes 10 s of a free core
]


def build(source: Path, target: Path, *, sanitizers: str) -> subprocess.CompletedProcess[str]:
    options = (f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all", "-Wno-psabi")
    flags = (*FLAGS, *options, *runnable_sets()[0].compiler_flags)
    command = (str(find_compiler()), *flags, "-o", str(target), str(source))
    return subprocess.run(command, capture_output=True, text=True, check=False)


def run(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (str(program), *arguments),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TSAN_OPTIONS": "exitcode=66"},
    )


@functools.cache
def works(sanitizers: str, folder: Path) -> bool:
    """Whether the compiler has these sanitizers and the kernel lets them run."""
    source = folder / "nothing.cpp"
    source.write_text("int main() {}\n")
    target = folder / "nothing"
    return (
        build(source, target, sanitizers=sanitizers).returncode == 0 and not run(target).returncode
    )


@pytest.mark.parametrize(
    ("name", "sanitizers", "arguments"),
    [
        ("random_steps", MEMORY, ("150",)),
        ("random_steps", THREADS, ("10",)),
        ("pool", THREADS, ()),
    ],
)
def test_nothing_is_found(
    name: str, sanitizers: str, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    if not works(sanitizers, tmp_path):
        pytest.skip(f"the compiler's {sanitizers} sanitizers do not run here")
    built = build(PROGRAMS / f"{name}.cpp", tmp_path / name, sanitizers=sanitizers)
    assert built.returncode == 0, built.stderr
    done = run(tmp_path / name, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
