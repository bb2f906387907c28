"""The examples in docs/structured_output.md are what the command prints."""

import re
from pathlib import Path

import pytest

from grammar.bench import BenchOptions
from grammar.coverage_table import byte_vocabulary
from grammar.explain import explain, explanation_table

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "structured_output.md"
EXAMPLE = re.compile(
    r"```json\n(?P<schema>.*?)```\n\n```text\n\$ radixgate grammar explain (?P<name>\S+)\n"
    r"(?P<output>.*?)```",
    re.S,
)
EXAMPLES = {
    found["name"]: (found["schema"], found["output"])
    for found in EXAMPLE.finditer(DOCUMENT.read_text(encoding="utf-8"))
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_output_that_is_shown_is_the_output(name: str) -> None:
    schema, output = EXAMPLES[name]
    explanation = explain(schema, byte_vocabulary(), BenchOptions())
    assert explanation_table(explanation) == output.rstrip("\n")


def test_each_class_has_an_example() -> None:
    shown = [output.splitlines()[0] for _, output in EXAMPLES.values()]
    assert shown == ["class: enforced", "class: checked", "class: refused"]
