"""A server that cannot start says why in one line on stderr, and what to do; no traceback."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.server_process import END_S, environment
from tests.model_file import ROOT, default_model_path, needs_model

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(90)]

EXIT_FAILED, EXIT_BAD_SETTING = 1, 2


@dataclass(frozen=True, slots=True)
class Start:
    """How a start ended. `complaint` is the one line."""

    code: int
    complaint: str
    stdout: str


def start(*flags: str, **variables: str) -> Start:
    """Settings as flags, and as whole names of variables."""
    done = subprocess.run(
        [sys.executable, "-m", "gateway.cli", "serve", *flags],
        cwd=ROOT,
        env={**environment({}), **variables},
        capture_output=True,
        text=True,
        timeout=END_S,
        check=False,
    )
    assert "Traceback" not in done.stderr
    complaints = [line for line in done.stderr.splitlines() if line.startswith("radixgate: ")]
    assert len(complaints) == 1, done.stderr
    assert "serving" not in done.stdout
    return Start(done.returncode, complaints[0], done.stdout)


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_taken_port_is_named_with_a_way_out(taken_port: int) -> None:
    ended = start("--port", str(taken_port))
    assert ended.code == EXIT_FAILED
    assert f"port {taken_port}" in ended.complaint
    assert "PORT=" in ended.complaint


def test_missing_model_file_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing.gguf"
    ended = start("--port", "0", "--model", str(missing))
    assert ended.code == EXIT_FAILED
    assert str(missing) in ended.complaint


def test_model_file_of_another_format_is_refused(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.gguf"
    wrong.write_bytes(b"PK\x03\x04" + bytes(4096))
    ended = start("--port", "0", "--model", str(wrong))
    assert ended.code == EXIT_FAILED
    assert str(wrong) in ended.complaint
    assert "GGUF" in ended.complaint


@needs_model
@pytest.mark.parametrize("num_bytes", [100, 1_000_000, 50_000_000])
def test_truncated_model_file_is_refused(tmp_path: Path, num_bytes: int) -> None:
    cut = tmp_path / "cut.gguf"
    with default_model_path().open("rb") as whole:
        cut.write_bytes(whole.read(num_bytes))
    ended = start("--port", "0", "--model", str(cut))
    assert ended.code == EXIT_FAILED
    assert str(cut) in ended.complaint


def test_damaged_default_model_says_how_to_get_it_again(tmp_path: Path) -> None:
    damaged = tmp_path / "smollm2-135m-instruct.gguf"
    damaged.write_bytes(b"GGUF" + bytes(4096))
    ended = start("--port", "0", RADIXGATE_MODEL_DIR=str(tmp_path))
    assert ended.code == EXIT_FAILED
    assert str(damaged) in ended.complaint
    assert "delete it" in ended.complaint


def test_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    ended = start("--port", "0", "--model", str(tmp_path))
    assert ended.code == EXIT_FAILED
    assert str(tmp_path) in ended.complaint


def test_context_longer_than_the_memory_is_refused_with_the_setting_to_change(
    tiny_model: Path,
) -> None:
    ended = start(
        *("--port", "0", "--model", str(tiny_model)),
        *("--kv-memory-mb", "1", "--max-model-len", "32768"),
    )
    assert ended.code == EXIT_FAILED
    assert "max_model_len" in ended.complaint


def test_unknown_setting_is_named_with_the_known_ones() -> None:
    ended = start(RADIXGATE_MAX_RUNING="5")
    assert ended.code == EXIT_BAD_SETTING
    assert "RADIXGATE_MAX_RUNING='5'" in ended.complaint
    assert "RADIXGATE_MAX_RUNNING" in ended.complaint


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("max_running", "many", "an integer"),
        ("max_running", "0", "an integer"),
        ("watermark", "2", "a number"),
        ("log_json", "perhaps", "true or false"),
        ("dtype", "float64", "one of auto, float32, bfloat16"),
        ("port", "99999", "an integer"),
    ],
)
def test_value_that_does_not_fit_is_named_with_what_is_expected(
    name: str, value: str, expected: str
) -> None:
    ended = start(**{f"RADIXGATE_{name.upper()}": value})
    assert ended.code == EXIT_BAD_SETTING
    assert f"RADIXGATE_{name.upper()}='{value}': expected {expected}" in ended.complaint


def test_bad_secret_is_not_printed() -> None:
    ended = start(RADIXGATE_SERVER_SECRET="hush")
    assert ended.code == EXIT_BAD_SETTING
    assert "RADIXGATE_SERVER_SECRET" in ended.complaint
    assert "hush" not in ended.complaint


def test_bad_collector_settings_are_refused(tiny_model: Path) -> None:
    ended = start(
        *("--port", "0", "--model", str(tiny_model)),
        OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9",
        OTEL_EXPORTER_OTLP_PROTOCOL="pigeon",
    )
    assert ended.code == EXIT_FAILED
    assert "pigeon" in ended.complaint
