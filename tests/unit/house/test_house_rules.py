"""Sizes and names that keep the code readable in an afternoon."""

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("gateway", "runtime", "prefix_cache", "grammar", "planning", "telemetry", "tests")
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
PACKAGES = ("gateway", "runtime", "prefix_cache", "grammar", "planning", "telemetry")
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60


def test_no_file_is_over_five_hundred_lines() -> None:
    long = {
        str(p.relative_to(ROOT)): n
        for p in FILES
        if (n := len(p.read_text().splitlines())) > MAX_FILE_LINES
    }
    assert long == {}


def test_no_function_is_over_sixty_lines() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno + 1 > MAX_FUNCTION_LINES
    ]
    assert long == []


def test_every_module_says_what_it_is() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in FILES
        if path.name != "__init__.py" and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert silent == []


def test_no_module_is_named_for_nothing() -> None:
    empty_names = {"utils.py", "helpers.py", "common.py", "misc.py"}
    assert [path for path in FILES if path.name in empty_names] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_are_sorted_and_exist(package: str) -> None:
    module = importlib.import_module(package)
    names = list(getattr(module, "__all__", []))
    assert names == sorted(names)
    assert [name for name in names if not hasattr(module, name)] == []


def words_in_backticks(text: str) -> set[str]:
    """Names in backticks that look like our files, modules or classes."""
    prose = re.sub(r"```.*?```", "", text, flags=re.S)
    return set(re.findall(r"`([^`\n]+)`", prose))


def test_every_file_and_class_that_the_architecture_names_exists() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    source = "\n".join(path.read_text() for path in FILES if "tests" not in path.parts)
    words = words_in_backticks(text)
    paths = {word for word in words if re.fullmatch(r"[\w./]+\.(py|md|toml|lock)", word)}
    classes = {word for word in words if re.fullmatch(r"[A-Z][a-z]+(?:[A-Z][a-z]+)+", word)}
    assert len(paths) > 10
    assert {path for path in paths if not (ROOT / path).exists()} == set()
    assert {name for name in classes if f"class {name}" not in source} == set()
