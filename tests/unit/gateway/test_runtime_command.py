"""`radixgate runtime`: the settings of a server become a runtime that anyone may connect to."""

import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.cli import main
from gateway.runtime_command import worker_options
from gateway.settings import Settings
from runtime.worker_options import WorkerOptions

SECRET_URL = "redis://:a-password@127.0.0.1:6379/0"


class Executed(Exception):
    """Instead of becoming another process."""


def executed(monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> tuple[list[str], Any]:
    """The command line and the environment of what the command becomes."""
    calls: list[tuple[list[str], Any]] = []

    def note(_path: str, command: list[str], environment: Any) -> None:
        calls.append((list(command), environment))
        raise Executed

    monkeypatch.setattr(os, "execve", note)
    with pytest.raises(Executed):
        main(["runtime", *arguments])
    return calls[0]


def test_the_settings_reach_the_process_and_secrets_do_not_reach_its_arguments(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = tmp_path / "Some-Model.gguf"
    model.touch()
    monkeypatch.setenv("RADIXGATE_CACHE_REDIS_URL", SECRET_URL)
    monkeypatch.setenv("RADIXGATE_SERVER_SECRET", "0123456789abcdef")
    flags = ["--model", str(model), "--runtime-listen", "tcp://0.0.0.0:5701"]
    command, environment = executed(monkeypatch, [*flags, "--kv-memory-mb", "64"])
    assert command[0] == sys.executable
    assert command[2:4] == ["-m", "runtime.worker"]
    options = msgspec.json.decode(command[4], type=WorkerOptions)
    assert options.address == "tcp://0.0.0.0:5701"
    assert options.config.model == str(model)
    assert options.config.kv_memory_bytes == 64 * 1024 * 1024
    assert options.config.tiers.model_id == "some-model"
    assert options.parent_pid is None
    assert environment["RADIXGATE_CACHE_REDIS_URL"] == SECRET_URL
    assert "a-password" not in " ".join(command)
    assert "0123456789abcdef" not in " ".join(command)


def test_a_runtime_that_shares_prefixes_needs_the_secret_that_hides_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model.gguf"
    model.touch()
    monkeypatch.setenv("RADIXGATE_CACHE_REDIS_URL", SECRET_URL)
    assert main(["runtime", "--model", str(model)]) == 2
    assert "RADIXGATE_SERVER_SECRET" in capsys.readouterr().err


def test_an_alias_of_what_is_not_served_ends_the_command_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    model = tmp_path / "model.gguf"
    model.touch()
    assert main(["runtime", "--model", str(model), "--model-aliases", "other=absent"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("radixgate: ")
    assert said.count("\n") == 1


def test_the_share_of_recorded_steps_is_told_to_the_runtime(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    model.touch()
    settings = Settings(model=str(model), trace_steps=0.5, server_secret="0123456789abcdef")
    assert worker_options(settings).config.trace_steps == 0.5
