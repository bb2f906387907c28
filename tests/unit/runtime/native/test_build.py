"""Building the native step, with compilers that are scripts or a source of one line."""

import fcntl
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from runtime.native import build
from runtime.native.build import BuildError, build_library, can_build, find_compiler, library_path
from runtime.native.instruction_sets import INSTRUCTION_SETS
from runtime.native.library import LibraryError, load_library
from runtime.worker_process import environment

PLAIN = INSTRUCTION_SETS[-1]
BUILD = """
from runtime.native.build import build_library
from runtime.native.instruction_sets import INSTRUCTION_SETS
build_library(INSTRUCTION_SETS[-1])
"""


@pytest.fixture(autouse=True)
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small step of our own, an empty cache, and no compiler but the one that a test names."""
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "step.cpp").write_text('#include "a.h"\n')
    (folder / "a.h").write_text('extern "C" int rg_interface_version() { return -1; }\n')
    monkeypatch.setattr(build, "_SOURCES", folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CXX", raising=False)
    return folder


@pytest.fixture
def no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """A shell script as CXX. `$target` is what it is asked to write."""
    path = tmp_path / "compiler"
    path.write_text(
        "#!/bin/sh\n"
        'for argument in "$@"; do [ "$last" = -o ] && target="$argument"; last="$argument"; done\n'
        + script
    )
    path.chmod(0o755)
    monkeypatch.setenv("CXX", str(path))
    return path


def message_of(error: pytest.ExceptionInfo[BuildError]) -> str:
    message = str(error.value)
    assert "\n" not in message
    return message


def test_the_name_is_the_same_for_the_same_sources() -> None:
    assert library_path(PLAIN) == library_path(PLAIN)
    assert library_path(PLAIN).name.startswith("step-plain-")


def test_the_name_changes_with_every_source_and_flag(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {library_path(one).name for one in INSTRUCTION_SETS}
    (sources / "a.h").write_text("// changed\n")
    names.add(library_path(PLAIN).name)
    (sources / "b.h").write_text("")
    names.add(library_path(PLAIN).name)
    (sources / "step.cpp").write_text("// changed\n")
    names.add(library_path(PLAIN).name)
    monkeypatch.setattr(build, "_FLAGS", ("-O0",))
    names.add(library_path(PLAIN).name)
    assert len(names) == len(INSTRUCTION_SETS) + 4


def test_what_was_built_is_not_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler(tmp_path, monkeypatch, f'echo "$@" >> {tmp_path}/calls; echo built > "$target"\n')
    path = build_library(PLAIN)
    assert path == library_path(PLAIN)
    assert path.read_text() == "built\n"
    assert build_library(PLAIN) == path
    (call,) = (tmp_path / "calls").read_text().splitlines()
    assert "-std=c++20" in call
    assert call.endswith("step.cpp")
    assert list(path.parent.iterdir()) == [path]


def test_a_set_is_built_with_its_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler(tmp_path, monkeypatch, 'echo "$@" > "$target"\n')
    for one in INSTRUCTION_SETS:
        command = build_library(one).read_text().split()
        assert set(one.compiler_flags) <= set(command)


def test_a_name_in_cxx_that_is_no_program_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = find_compiler()
    monkeypatch.setenv("CXX", "/nowhere/g++")
    assert find_compiler() == expected


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_the_error_says_so() -> None:
    assert find_compiler() is None
    assert not can_build(PLAIN)
    with pytest.raises(BuildError) as error:
        build_library(PLAIN)
    assert "no C++ compiler (g++)" in message_of(error)


@pytest.mark.usefixtures("no_compiler")
def test_what_was_built_needs_no_compiler() -> None:
    library_path(PLAIN).parent.mkdir(parents=True)
    library_path(PLAIN).write_bytes(b"built")
    assert can_build(PLAIN)
    assert build_library(PLAIN) == library_path(PLAIN)


def test_the_first_error_of_a_compiler_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = compiler(
        tmp_path,
        monkeypatch,
        'printf "a note\\nstep.cpp:3: error: no such thing\\nb.h:4: error: two\\n" >&2; exit 1\n',
    )
    with pytest.raises(BuildError) as error:
        build_library(PLAIN)
    assert message_of(error) == f"{path} failed: step.cpp:3: error: no such thing"
    assert list(library_path(PLAIN).parent.iterdir()) == []


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 7\n", "exit code 7"),
        ('echo "out of memory" >&2; exit 1\n', "out of memory"),
        ("kill -9 $$\n", "exit code -9"),
        ("exit 0\n", "wrote nothing"),
    ],
)
def test_a_compiler_that_says_little_is_quoted(
    script: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = compiler(tmp_path, monkeypatch, script)
    with pytest.raises(BuildError) as error:
        build_library(PLAIN)
    assert message_of(error) == f"{path} failed: {said}"


def test_a_compiler_that_cannot_be_started_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = compiler(tmp_path, monkeypatch, "")
    path.write_bytes(b"\x7fELF and no more")
    with pytest.raises(BuildError) as error:
        build_library(PLAIN)
    assert message_of(error) == f"{path} failed: Exec format error"


def test_a_compiler_that_does_not_end_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = compiler(tmp_path, monkeypatch, "exec sleep 60\n")
    monkeypatch.setattr(build, "BUILD_TIMEOUT_S", 0.2)
    with pytest.raises(BuildError) as error:
        build_library(PLAIN)
    assert message_of(error) == f"{path} took more than 0.2 s"


def test_a_folder_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler(tmp_path, monkeypatch, 'echo built > "$target"\n')
    (tmp_path / "file").write_bytes(b"in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(BuildError) as error:
        build_library(PLAIN)
    assert message_of(error) == (
        f"{tmp_path}/file/radixgate/native: cannot be written (Not a directory)"
    )


def test_what_a_killed_builder_left_is_removed_when_its_compiler_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "started")
    os.mkfifo(tmp_path / "go_on")
    compiler(
        tmp_path,
        monkeypatch,
        f'echo half > "$target"; echo > {tmp_path}/started; exec cat {tmp_path}/go_on\n',
    )
    builder = subprocess.Popen((sys.executable, "-P", "-c", BUILD), env=environment())
    (tmp_path / "started").read_bytes()
    builder.kill()
    builder.wait()
    compiler(tmp_path, monkeypatch, 'echo built > "$target"\n')
    first = build_library(PLAIN)
    (left,) = set(first.parent.iterdir()) - {first}
    assert [path.read_text() for path in left.iterdir()] == ["half\n"]
    (tmp_path / "go_on").write_bytes(b"")
    descriptor = os.open(left, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)  # waits for the compiler's end
    os.close(descriptor)
    second = build_library(INSTRUCTION_SETS[0])
    assert set(first.parent.iterdir()) == {first, second}


def test_two_builders_at_once_leave_one_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each waits in the compiler until the other is there."""
    (tmp_path / "met").mkdir()
    compiler(
        tmp_path,
        monkeypatch,
        f"""
        printf half > "$target"
        touch {tmp_path}/met/$$
        until [ "$(ls {tmp_path}/met | wc -l)" = 2 ]; do :; done
        printf whole >> "$target"
        """,
    )
    paths: list[Path] = []
    builders = [threading.Thread(target=lambda: paths.append(build_library(PLAIN))) for _ in "ab"]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join()
    assert paths == [library_path(PLAIN)] * 2
    assert library_path(PLAIN).read_text() == "halfwhole"
    assert list(library_path(PLAIN).parent.iterdir()) == [library_path(PLAIN)]


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ here")
def test_a_library_of_another_version_is_refused() -> None:
    with pytest.raises(LibraryError, match="has interface version -1, not"):
        load_library(build_library(PLAIN))


@pytest.mark.parametrize("content", [b"", b"no library", b"\x7fELF"])
def test_a_damaged_library_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "step.so").write_bytes(content)
    with pytest.raises(LibraryError, match=r"step\.so: cannot be loaded") as error:
        load_library(tmp_path / "step.so")
    assert "\n" not in str(error.value)


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ here")
@pytest.mark.parametrize("share", [0.01, 0.5, 0.999])
def test_a_library_that_is_cut_off_is_refused_before_it_is_touched(
    share: float, tmp_path: Path
) -> None:
    """Beyond the file's end the loader itself gets SIGBUS."""
    whole = build_library(PLAIN).read_bytes()
    (tmp_path / "step.so").write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(LibraryError, match=r"step\.so: is cut off$"):
        load_library(tmp_path / "step.so")


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ here")
def test_a_library_without_the_functions_is_refused(sources: Path) -> None:
    (sources / "a.h").write_text('extern "C" int something_else() { return 1; }\n')
    with pytest.raises(LibraryError, match="cannot be loaded"):
        load_library(build_library(PLAIN))


def test_the_real_sources_are_those_beside_the_builder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert {path.suffix for path in build._SOURCES.iterdir()} >= {".h", ".cpp"}
    assert os.fspath(build._SOURCES).endswith("runtime/native")
