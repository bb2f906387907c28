"""The page of faults: its rows are whole, their tests exist, and no test of a fault is left out."""

import re

import pytest

from tests.named_tests import NAMED_TEST, ROOT, is_there, names_of_tests

# As many symptoms as were known when the page was written; it only grows.
MIN_ROWS = 49
REPORT = re.compile(r"[\w./-]+#\d+|CVE-\d+-\d+")
PAGE = (ROOT / "docs/faults.md").read_text()


def rows() -> list[list[str]]:
    """The cells of each row, without the table's head."""
    lines = [line for line in PAGE.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_no_symptom_is_lost() -> None:
    symptoms = [row[0] for row in rows()]
    assert len(symptoms) >= MIN_ROWS
    assert len(set(symptoms)) == len(symptoms)


def test_each_row_has_a_report_an_answer_and_a_test() -> None:
    for symptom, reports, answer, tests in rows():
        assert REPORT.search(reports), symptom
        assert answer
        assert re.fullmatch(r"`[^`]+`(<br>`[^`]+`)*", tests), symptom


def test_every_test_of_the_page_exists() -> None:
    named = re.findall(r"`([^`]+)`", " ".join(row[3] for row in rows()))
    assert len(named) >= MIN_ROWS
    assert [name for name in named if not is_there(name)] == []


def test_every_test_of_a_fault_is_on_the_page() -> None:
    listed = {(found["path"], found["test"]) for found in NAMED_TEST.finditer(PAGE)}
    folder = ROOT / "tests/integration/http/faults"
    missing = [
        f"{path.name}::{name}"
        for path in folder.glob("test_*.py")
        for name in names_of_tests(path)
        if (str(path.relative_to(ROOT)), name) not in listed
    ]
    assert missing == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tests/unit/house/test_faults_page.py::test_no_symptom_is_lost", True),
        ("tests/unit/house/test_faults_page.py::test_never_written", False),
        ("tests/unit/house/test_no_such_file.py::test_no_symptom_is_lost", False),
        ("tests/unit/house/test_faults_page.py::rows", False),
        ("tests/conformance/malformed_bodies.py::test_wrong_chat_is_refused[format type]", True),
        ("tests/conformance/malformed_bodies.py::test_wrong_chat_is_refused[no case]", False),
    ],
)
def test_a_name_is_there_or_is_not(name: str, expected: bool) -> None:
    assert is_there(name) is expected
