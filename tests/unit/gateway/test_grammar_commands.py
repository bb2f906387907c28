"""`radixgate grammar bench` and `explain` from arguments to exit code and output."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gateway import cli, grammar_commands
from tests.small_vocabulary import small_vocabulary

ROOT = Path(__file__).resolve().parents[3]
REQUIRED_KEYS = {
    "schemas", "enforced", "checked", "refused", "crashed", "false_accept", "false_reject",
    "compile_ms_p50", "compile_ms_p99", "mask_us_p50", "mask_us_p99",
}  # fmt: skip
LINES = [
    {"id": "a", "schema": {"type": "integer"}, "tests": [{"data": 1, "valid": True}]},
    {"id": "b", "schema": {"minLength": "x"}, "tests": [{"data": 1, "valid": True}]},
]


@pytest.fixture(autouse=True)
def _small_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar_commands, "load_vocabulary", lambda _: small_vocabulary())


def written(folder: Path, *values: object) -> str:
    path = folder / "file.json"
    path.write_text("\n".join(json.dumps(value) for value in values))
    return str(path)


def test_the_last_line_of_a_bench_is_one_object(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["grammar", "bench", written(tmp_path, *LINES)]) == 0
    *table, last = capsys.readouterr().out.splitlines()
    summary = json.loads(last)
    assert REQUIRED_KEYS <= summary.keys()
    assert (summary["schemas"], summary["enforced"], summary["refused"]) == (2, 1, 1)
    assert any("minLength" in line for line in table)


def test_a_bench_writes_every_result_where_it_is_asked_to(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    file = written(tmp_path, *LINES)
    assert cli.main(["grammar", "bench", file, "--json-out", str(out), "--limit", "1"]) == 0
    details = json.loads(out.read_text())
    assert [entry["id"] for entry in details["results"]] == ["a"]


def test_a_bench_of_a_bad_file_ends_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["grammar", "bench", written(tmp_path, {"schema": 1}, [])]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.endswith("file.json: line 2: it is not a JSON object\n")


@pytest.mark.parametrize("flags", [["--jobs", "0"], ["--timeout-s", "nan"], ["--engine", "x"]])
def test_a_bad_flag_is_an_error(flags: list[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["grammar", "bench", written(tmp_path, *LINES), *flags])
    assert caught.value.code == 2


def test_a_place_that_cannot_be_written_is_told_in_one_line_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, place = written(tmp_path, LINES[0]), str(tmp_path / "none" / "out.json")
    assert cli.main(["grammar", "bench", file, "--json-out", place]) == 1
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)


def test_progress_is_told_every_few_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(grammar_commands, "PROGRESS_S", 0.0)
    cli.main(["grammar", "bench", written(tmp_path, *LINES)])
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("radixgate: 2 of 2 schemas in ")
    assert lines[1].endswith("1 enforced, 1 refused, 0 wrong")


@pytest.mark.parametrize(
    ("schema", "code", "name"),
    [({"type": "string"}, 0, "enforced"), ({"type": "strin"}, 4, "refused")],
)
def test_the_exit_code_of_explain_is_the_class(
    schema: object, code: int, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["grammar", "explain", written(tmp_path, schema)]) == code
    assert capsys.readouterr().out.startswith(f"class: {name}\n")


def test_explain_says_the_same_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["grammar", "explain", written(tmp_path, {"maximum": 3}), "--json"]) == 0
    explanation = json.loads(capsys.readouterr().out)
    assert (explanation["class"], explanation["engine"]) == ("enforced", "llguidance")
    (keyword,) = explanation["keywords"]
    assert (keyword["pointer"], keyword["treatment"]) == ("/maximum", "enforced")


@pytest.mark.parametrize("content", [None, b"\xff"])
def test_explain_of_an_unreadable_file_ends_in_one_line(
    content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "schema.json"
    if content is not None:
        path.write_bytes(content)
    assert cli.main(["grammar", "explain", str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_commands_load_no_http_stack() -> None:
    program = "import sys, gateway.cli, gateway.grammar_commands; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert loaded.isdisjoint({"fastapi", "uvicorn", "torch", "llguidance", "xgrammar", "zmq"})
