"""Workload files: the examples of the documentation are read, anything wrong is said in a line."""

import json
from pathlib import Path
from typing import Any

import pytest

from telemetry import workload_file
from telemetry.workload_file import WorkloadFileError, read_workload
from telemetry.workloads import KINDS, MultiTurn, Requests, make_scripts

EXAMPLES = Path(__file__).resolve().parents[3] / "docs/workloads"
CHATS: dict[str, Any] = {
    "version": 1,
    "kind": "multi_turn",
    "users": 2,
    "turns": 3,
    "system_tokens": 0,
    "user_tokens": 6,
    "output_tokens": 4,
}


def written(folder: Path, content: object) -> Path:
    path = folder / "w.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_there_is_an_example_of_every_kind_and_each_makes_scripts() -> None:
    paths = sorted(EXAMPLES.glob("*.json"))
    assert sorted(json.loads(path.read_text())["kind"] for path in paths) == sorted(KINDS)
    assert all(make_scripts(read_workload(path)) for path in paths)


def test_what_is_left_out_has_its_default(tmp_path: Path) -> None:
    workload = read_workload(written(tmp_path, CHATS))
    assert isinstance(workload, MultiTurn)
    assert (workload.users, workload.seed, workload.think_time_s) == (2, 1, 0.0)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "truncated"),
        ("[]", "Expected `object`"),
        (CHATS | {"version": 2}, "version: expected 1, got 2"),
        (CHATS | {"version": 2, "later": True}, "version: expected 1, got 2"),
        ({"kind": "multi_turn"}, "missing required field `version`"),
        (CHATS | {"kind": "nope"}, "kind: Invalid value 'nope'; expected one of prefix_repetition"),
        (CHATS | {"users": 0}, "users: Expected `int` >= 1"),
        (CHATS | {"turns": "x"}, "turns: Expected `int`, got `str`"),
        (CHATS | {"user_tokens": -1}, "user_tokens: Expected `int` >= 0"),
        (CHATS | {"output_tokens": 10**9}, "output_tokens: Expected `int` <= 1000000"),
        (CHATS | {"trns": 3}, "unknown field `trns`"),
        ({"version": 1, "kind": "requests", "file": "f", "bodies": [{}]}, "bodies: they belong"),
        ({"version": 1, "kind": "requests", "file": "f"}, "f: No such file"),
    ],
)
def test_what_is_wrong_is_said_with_the_file_and_the_field(
    tmp_path: Path, content: object, reason: str
) -> None:
    path = written(tmp_path, content)
    with pytest.raises(WorkloadFileError) as raised:
        read_workload(path)
    assert reason in str(raised.value)
    assert str(tmp_path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorkloadFileError, match=r"none\.json: No such file"):
        read_workload(tmp_path / "none.json")


def with_bodies(folder: Path, lines: str) -> Path:
    (folder / "b.jsonl").write_text(lines)
    return written(folder, {"version": 1, "kind": "requests", "file": "b.jsonl"})


def test_bodies_are_read_from_beside_the_file_and_empty_lines_are_left_out(tmp_path: Path) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": "hi"}]})
    workload = read_workload(with_bodies(tmp_path, f"{body}\n\n{body}\n"))
    assert isinstance(workload, Requests)
    assert workload.bodies == (json.loads(body),) * 2


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("", "there is no body in it"),
        ("{}", "line 1: messages"),
        ('\n{"messages": []}', "line 2: messages"),
        ("3", "line 1: expected an object"),
        ("{", "line 1: no JSON"),
        ('{"messages": [{}], "n": 2}', "line 1: n: expected 1"),
    ],
)
def test_a_wrong_body_is_named_by_its_line(tmp_path: Path, lines: str, reason: str) -> None:
    with pytest.raises(WorkloadFileError, match=reason):
        read_workload(with_bodies(tmp_path, lines))


DEEP = "[" * 200_000 + "]" * 200_000


def test_a_file_that_is_nested_without_an_end_is_said(tmp_path: Path) -> None:
    with pytest.raises(WorkloadFileError, match=r"w\.json: it is nested too deeply"):
        read_workload(written(tmp_path, f'{{"x": {DEEP}, "version": 1}}'))
    (tmp_path / "b.jsonl").write_text(DEEP)
    given = {"version": 1, "kind": "requests", "file": "b.jsonl"}
    with pytest.raises(WorkloadFileError, match=r"b\.jsonl line 1: it is nested too deeply"):
        read_workload(written(tmp_path, given))


@pytest.mark.parametrize("name", ["a\0b", "a" * 5_000, "/"])
def test_a_name_that_is_no_files_is_said(tmp_path: Path, name: str) -> None:
    with pytest.raises(WorkloadFileError):
        read_workload(written(tmp_path, {"version": 1, "kind": "requests", "file": name}))


def test_a_file_without_an_end_is_not_read_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workload_file, "MAX_FILE_BYTES", 100_000)
    given = {"version": 1, "kind": "requests", "file": "/dev/zero"}
    with pytest.raises(WorkloadFileError, match="larger than 100000 bytes"):
        read_workload(written(tmp_path, given))
