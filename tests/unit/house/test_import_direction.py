"""One direction of imports: gateway -> runtime's torch-free modules -> prefix_cache and grammar."""

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("gateway", "runtime", "prefix_cache", "grammar", "telemetry", "planning")
MAY_IMPORT = {
    "gateway": {"gateway", "runtime", "prefix_cache", "grammar", "telemetry", "planning"},
    "runtime": {"runtime", "prefix_cache", "grammar", "telemetry"},
    "prefix_cache": {"prefix_cache"},
    "grammar": {"grammar"},
    "telemetry": {"telemetry"},
    "planning": {"planning"},
}
RUNTIME_FOR_GATEWAY = {
    "runtime.cache_folder",
    "runtime.cache_messages",
    "runtime.calibration_messages",
    "runtime.config",
    "runtime.errors",
    "runtime.gguf_file",
    "runtime.hub",
    "runtime.hub_reference",
    "runtime.messages",
    "runtime.model_source",
    "runtime.remote_engine",
    "runtime.supervisor",
    "runtime.text_assets",
    "runtime.token_engine",
    "runtime.wire",
    "runtime.worker_options",
    "runtime.worker_process",
}
HOME_OF = {
    "fastapi": {"gateway"},
    "starlette": {"gateway"},
    "torch": {"runtime", "grammar"},
    "xgrammar": {"grammar"},
    "opentelemetry": {"telemetry"},
    "prometheus_client": {"telemetry"},
}


def imports_of(path: Path) -> Iterator[str]:
    """Every module that the file imports, at any depth of the file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield str(node.module)


@functools.cache
def package_imports() -> list[tuple[str, Path, str]]:
    return [
        (package, path, name)
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        for name in imports_of(path)
    ]


def test_no_package_imports_against_the_direction() -> None:
    back_edges = [
        f"{path.relative_to(ROOT)} imports {name}"
        for package, path, name in package_imports()
        if name.split(".")[0] in PACKAGES and name.split(".")[0] not in MAY_IMPORT[package]
    ]
    assert back_edges == []


def test_the_gateway_reaches_only_the_torch_free_part_of_the_runtime() -> None:
    reached = {
        name
        for package, _, name in package_imports()
        if package == "gateway" and name.split(".")[0] == "runtime"
    }
    assert reached
    assert reached <= RUNTIME_FOR_GATEWAY


def test_the_runtime_takes_only_names_and_plain_sums_from_telemetry() -> None:
    taken = {
        name
        for package, _, name in package_imports()
        if package == "runtime" and name.split(".")[0] == "telemetry"
    }
    assert taken <= {
        "telemetry",
        "telemetry.duration_sketch",
        "telemetry.logs",
        "telemetry.names",
    }


@pytest.mark.parametrize("library", sorted(HOME_OF))
def test_heavy_libraries_stay_home(library: str) -> None:
    strays = {
        str(path.relative_to(ROOT))
        for package, path, name in package_imports()
        if name.split(".")[0] == library and package not in HOME_OF[library]
    }
    assert strays == set()


def test_the_gateway_process_never_loads_torch_transformers_or_xgrammar() -> None:
    program = "import sys, gateway.cli, gateway.serve; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert "fastapi" in loaded
    assert loaded.isdisjoint({"torch", "transformers", "xgrammar", "llguidance", "gguf"})
