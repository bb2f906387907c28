"""Files of the MaskBench form: what is read as it stands, and what is named with its line."""

import gzip
from pathlib import Path

import pytest

from grammar.bench_file import BenchCase, BenchFileError, Instance, read_cases


def written(folder: Path, content: str | bytes) -> Path:
    path = folder / "cases.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_texts_are_kept_as_they_stand_in_the_file(tmp_path: Path) -> None:
    line = (
        '{ "id" : "x" ,"schema":{"b": 1.0, "a":[ ]} , "origin": [1, {}],'
        ' "tests":[{"data": 1e400, "valid":true, "note":"n"}, {"valid": false,"data":"\\ud800"}] }'
    )
    assert read_cases(written(tmp_path, line)) == [
        BenchCase(
            "x",
            '{"b": 1.0, "a":[ ]}',
            (Instance("1e400", is_valid=True), Instance('"\\ud800"', is_valid=False)),
        )
    ]


def test_gzip_is_told_by_its_first_bytes(tmp_path: Path) -> None:
    path = written(tmp_path, gzip.compress(b'{"schema": true, "tests": []}\n'))
    assert read_cases(path) == [BenchCase("line 1", "true", ())]


def test_blank_lines_a_byte_order_mark_and_missing_names_are_no_fault(tmp_path: Path) -> None:
    path = written(tmp_path, b'\xef\xbb\xbf{"schema": 1}\r\n\n  \n{"id": 7, "schema": {}}')
    assert [case.id for case in read_cases(path)] == ["line 1", "7"]


def test_a_number_that_python_would_not_convert_is_kept(tmp_path: Path) -> None:
    digits = "1" * 10_000
    line = f'{{"schema": {{}}, "tests": [{{"data": {digits}, "valid": true}}]}}'
    assert read_cases(written(tmp_path, line))[0].instances[0].data == digits


def test_a_limit_leaves_the_lines_after_it_unread(tmp_path: Path) -> None:
    path = written(tmp_path, '{"schema": {}}\n{"schema": true}\nnonsense')
    assert [case.schema for case in read_cases(path, limit=2)] == ["{}", "true"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{}", "it has no 'schema'"),
        ("[]", "it is not a JSON object"),
        ('{"schema": nul}', "it is not JSON: Expecting value (character 12)"),
        ('{"schema": NaN}', "it is not JSON: NaN"),
        ('{"schema": {}', "it is not JSON: ',' was expected (character 14)"),
        ('{"schema" {}}', "it is not JSON: ':' was expected (character 11)"),
        ('{"schema": {},}', "it is not JSON: a key was expected (character 15)"),
        ('{"schema": {}} {}', "something follows the JSON object"),
        ('{"schema": ' + "[" * 200_000, "its JSON is nested too deeply"),
        ('{"schema": {}, "tests": {}}', "'tests' is not an array"),
        ('{"schema": {}, "tests": [[]]}', "test 1 is not an object"),
        ('{"schema": {}, "tests": [{"data": 1}]}', "test 1 lacks 'data' or 'valid'"),
        (
            '{"schema": {}, "tests": [{"data": 1, "valid": 1}]}',
            "test 1: 'valid' is neither true nor false",
        ),
    ],
)
def test_a_bad_line_is_named_by_its_number(line: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(BenchFileError) as caught:
        read_cases(written(tmp_path, f'{{"schema": {{}}}}\n\n{line}\n'))
    assert str(caught.value).endswith(f"cases.jsonl: line 3: {reason}")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"schema": "\xff"}', "line 1: it is not UTF-8"),
        (b"\n \n", "it has no line with a schema"),
        (gzip.compress(b'{"schema": {}}')[:-6], "cannot be read"),
        (b"\x1f\x8bnonsense", "cannot be read"),
    ],
)
def test_a_damaged_file_is_an_error(content: bytes, reason: str, tmp_path: Path) -> None:
    with pytest.raises(BenchFileError, match=reason):
        read_cases(written(tmp_path, content))


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BenchFileError, match="No such file"):
        read_cases(tmp_path / "none.jsonl")
