"""Devices have names in few places: everything else is told where it runs."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
MAY_NAME_CUDA = {"config.py", "hardware.py", "model_runner.py", "cuda_executor.py"}


def names_cuda(path: Path) -> Iterator[str]:
    """Constants and attributes of the file that mean this one kind of device."""
    for node in ast.walk(ast.parse(path.read_text())):
        is_name = isinstance(node, ast.Constant) and node.value in ("cuda", "cuda:0")
        is_call = isinstance(node, ast.Attribute) and node.attr in ("cuda", "pin_memory")
        if is_name or is_call:
            yield ast.unparse(node)


def test_cuda_is_named_in_four_modules_of_the_runtime_and_nowhere_else() -> None:
    files = {
        path: list(names_cuda(path))
        for package in ("gateway", "runtime", "prefix_cache", "grammar", "planning", "telemetry")
        for path in (ROOT / package).rglob("*.py")
    }
    found = {path.name for path, places in files.items() if places}
    assert found == MAY_NAME_CUDA
    assert all(path.parent == ROOT / "runtime" for path, places in files.items() if places)
