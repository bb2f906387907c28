"""`radixgate key new` and `radixgate key hash`."""

import io
import subprocess
import sys

import pytest

from gateway.cli import main
from gateway.key_file import parse_keys
from tests.key_files import hash_of


def test_new_keys_are_random_and_their_hash_fits_the_key_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["key", "new"]) == main(["key", "new"]) == 0
    first, line, second, _ = capsys.readouterr().out.splitlines()
    assert first != second
    assert first.startswith("rg-")
    assert len(first) == 46
    assert line == f"hash: {hash_of(first)}"
    (entry,) = parse_keys(f"keys:\n- {line}\n  tenant: a".encode())
    assert entry.digest.hex() == line.removeprefix("hash: sha256:")


def test_hash_of_a_key_from_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    key = "rg-" + "x" * 40
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{key}\n"))
    assert main(["key", "hash"]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == (f"hash: {hash_of(key)}\n", "")


def test_short_key_is_hashed_with_a_warning_and_none_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("secret\n"))
    assert main(["key", "hash"]) == 0
    out, err = capsys.readouterr()
    assert out == f"hash: {hash_of('secret')}\n"
    assert "shorter than 32" in err
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n"))
    assert main(["key", "hash"]) == 2


def test_commands_do_not_load_the_http_stack() -> None:
    program = (
        "import sys\nfrom gateway.cli import main\nmain(['key', 'new'])\nprint(*sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert "gateway" in loaded
    assert loaded.isdisjoint({"fastapi", "starlette", "redis", "yaml"})
