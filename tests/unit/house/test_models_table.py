"""README's table of models names every architecture that can be opened, and no other."""

import re
from pathlib import Path

from runtime.models.registry import GGUF_ARCHITECTURES, MODEL_TYPES

ROOT = Path(__file__).resolve().parents[3]


def rows() -> list[list[str]]:
    """The table's rows without its head, as cells."""
    section = (ROOT / "README.md").read_text().split("\n## Models\n")[1].split("\n## ")[0]
    return [line.split("|")[1:-1] for line in section.splitlines() if line.startswith("|")][2:]


def cells(column: int) -> set[str]:
    """All names in backticks in one column of the table under Models."""
    return {name for row in rows() for name in re.findall(r"`([^`]+)`", row[column])}


def test_the_table_lists_every_model_type_and_gguf_architecture() -> None:
    assert cells(1) == set(MODEL_TYPES)
    assert cells(2) == set(GGUF_ARCHITECTURES)


def test_each_architecture_has_its_module() -> None:
    modules = {fn.__module__ for fn in (*MODEL_TYPES.values(), *GGUF_ARCHITECTURES.values())}
    assert modules == {f"runtime.models.{row[0].strip()}" for row in rows()}
