"""The native step under the compiler's sanitizers: no access outside a buffer, no undefined result,
no race between its threads. Each program is a random walk that ends with 0 where nothing is found.
"""

import functools
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
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


RUNS = [
    ("random_steps", MEMORY, ("150",)),
    ("random_steps", THREADS, ("10",)),
    ("pool", THREADS, ()),
]
Build = Future[subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def builds(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[tuple[str, str], tuple[Path, Build]]]:
    """All programs are compiled at once: it takes longer than to run them."""
    folder = tmp_path_factory.mktemp("sanitized")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = {}
        for number, (name, sanitizers, _) in enumerate(RUNS):
            source, target = PROGRAMS / f"{name}.cpp", folder / f"{name}-{number}"
            built = pool.submit(build, source, target, sanitizers=sanitizers)
            found[name, sanitizers] = (target, built)
        yield found


@pytest.mark.parametrize(("name", "sanitizers", "arguments"), RUNS)
def test_nothing_is_found(
    name: str,
    sanitizers: str,
    arguments: tuple[str, ...],
    builds: dict[tuple[str, str], tuple[Path, Build]],
    tmp_path: Path,
) -> None:
    if not works(sanitizers, tmp_path):
        pytest.skip(f"the compiler's {sanitizers} sanitizers do not run here")
    program, build_of_it = builds[name, sanitizers]
    built = build_of_it.result()
    assert built.returncode == 0, built.stderr
    done = run(program, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
