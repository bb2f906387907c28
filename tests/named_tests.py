"""Tests by the names that documents give them: path::function, with a [case] where it has many."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NAMED_TEST = re.compile(r"(?P<path>tests/[\w/]+\.py)::(?P<test>test_\w+)(?:\[(?P<case>[^\]]+)\])?")


@cache
def names_of_tests(path: Path) -> frozenset[str]:
    """The functions of a file that a runner takes for tests."""
    body = ast.parse(path.read_text()).body
    functions = [node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return frozenset(one.name for one in functions if one.name.startswith("test_"))


def is_there(name: str) -> bool:
    """Whether the file has the test, and names the case."""
    named = NAMED_TEST.fullmatch(name)
    if named is None:
        return False
    path = ROOT / named["path"]
    has_case = named["case"] is None or f'"{named["case"]}"' in path.read_text()
    return path.is_file() and named["test"] in names_of_tests(path) and has_case
