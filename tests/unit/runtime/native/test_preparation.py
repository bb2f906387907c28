"""The child that prepares the native step: its exit codes, its priority, its end."""

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.errors import ModelError
from runtime.model_source import open_model
from runtime.native import preparation
from runtime.native.build import BuildError, library_path
from runtime.native.packed_weights import packed_path
from runtime.native.preparation import Preparation, main
from runtime.worker_process import environment
from tests.native_library import HAS_COMPILER, NO_COMPILER, built_library, make_cache, runnable_sets
from tests.tiny_gguf import write_tiny_gguf

needs_compiler = pytest.mark.skipif(not HAS_COMPILER, reason=NO_COMPILER)


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(write_tiny_gguf(tmp_path / "tiny.gguf"))


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built_library(runnable_sets()[0])
    monkeypatch.setenv("XDG_CACHE_HOME", str(make_cache(tmp_path / "cache")))


@needs_compiler
@pytest.mark.timeout(300)  # builds the library
@pytest.mark.usefixtures("built")
def test_after_it_library_and_weights_are_there(
    model: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([model]) == 0
    assert library_path(runnable_sets()[0]).exists()
    assert packed_path(open_model(model)).exists()
    assert capfd.readouterr() == ("", "")


@needs_compiler
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("built")
def test_a_model_that_cannot_be_read_is_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + bytes(20))
    assert main([str(tmp_path / "broken.gguf")]) == 1
    error = capfd.readouterr().err
    assert error.startswith("radixgate: the native step is not available: ")
    assert "broken.gguf" in error
    assert error.count("\n") == 1


@needs_compiler
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("built")
def test_weights_that_cannot_be_kept_are_one_line(
    model: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The runtime would have to pack them between two steps."""
    weights = tmp_path / "cache" / "radixgate" / "weights"
    weights.write_bytes(b"in the way")
    assert main([model]) == 1
    assert capfd.readouterr().err == (
        "radixgate: the native step is not available:"
        f" {weights}: packed weights cannot be written here\n"
    )


def test_no_compiler_is_one_line(
    model: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert main([model]) == 1
    assert capfd.readouterr().err == (
        "radixgate: the native step is not available: there is no C++ compiler (g++), so the"
        " native step cannot be built\n"
    )


@pytest.mark.parametrize("error", [ModelError("no model"), BuildError("no compiler")])
def test_what_went_wrong_is_the_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(_: str) -> None:
        raise error

    monkeypatch.setattr(preparation, "prepare", fail)
    assert main(["m"]) == 1
    assert capfd.readouterr().err == f"radixgate: the native step is not available: {error}\n"


def test_ctrl_c_ends_it_without_a_word(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(preparation, "prepare", interrupt)
    assert main(["m"]) == 130
    assert capfd.readouterr() == ("", "")


def test_run_by_hand_it_keeps_its_priority_and_its_own_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> None:
        raise AssertionError("only for children")

    monkeypatch.setattr(preparation, "die_with_parent", fail)
    monkeypatch.setattr(preparation, "_become_idle", fail)
    prepared: list[str] = []
    monkeypatch.setattr(preparation, "prepare", prepared.append)
    assert main(["--", "-odd name"]) == 0
    assert prepared == ["-odd name"]


# A preparation that says at which priority it runs, and then waits.
CHILD = """
import os, signal, sys
from runtime.native import preparation

def wait(model):
    print(os.getpid(), os.sched_getscheduler(0), model, flush=True)
    signal.pause()

preparation.prepare = wait
sys.exit(preparation.main(["--parent-pid", sys.argv[1], "--", "a model"]))
"""
PARENT = f"""
import os, subprocess, sys
subprocess.run([sys.executable, "-c", {CHILD!r}, str(os.getpid())])
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="watches the process by its pidfd")
def test_the_child_is_idle_and_ends_with_its_parent() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, env=environment()
    )
    assert parent.stdout is not None
    pid, scheduler, model = parent.stdout.readline().split(maxsplit=2)
    child = os.pidfd_open(int(pid))
    try:
        assert int(scheduler) == os.SCHED_IDLE
        assert model == "a model\n"
        parent.kill()
        parent.wait()
        assert select.select([child], [], [], 10.0)[0] == [child]
    finally:
        os.close(child)
        parent.stdout.close()


def test_a_child_whose_parent_is_gone_prepares_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(os.getppid())],
        capture_output=True,
        env=environment(),
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, b"")


def test_a_system_without_an_idle_class_takes_the_lowest_priority(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    niceness: list[int] = []

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    monkeypatch.setattr(os, "nice", niceness.append)
    preparation._become_idle()
    assert niceness == [19]


class FakeProcess:
    def __init__(self) -> None:
        self.code: int | None = None

    def poll(self) -> int | None:
        return self.code


@pytest.mark.parametrize(("code", "outcome"), [(None, None), (0, True), (1, False), (-9, False)])
def test_the_outcome_is_the_exit_code(code: int | None, outcome: bool | None) -> None:
    process = FakeProcess()
    process.code = code
    assert Preparation(process).outcome() is outcome  # type: ignore[arg-type]


@pytest.mark.parametrize("exit_code", [0, 1])
def test_a_started_child_is_told_the_model_and_its_parent(
    exit_code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script in place of the interpreter: torch takes minutes to import at idle priority beside
    busy processes."""
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/said\nexit {exit_code}\n')
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    started = Preparation.start("-a model")
    started._process.wait()
    assert started.outcome() is (exit_code == 0)
    first, second, module, *arguments = (tmp_path / "said").read_text().splitlines()
    assert (first, second, module) == ("-P", "-m", "runtime.native.preparation")
    prepared: list[str] = []
    monkeypatch.setattr(preparation, "prepare", prepared.append)
    monkeypatch.setattr(preparation, "die_with_parent", lambda: None)
    monkeypatch.setattr(preparation, "_become_idle", lambda: None)
    monkeypatch.setattr(os, "getppid", os.getpid)
    assert main(arguments) == 0
    assert prepared == ["-a model"]
