"""The README lists every setting, with the default that the code has."""

import re
from pathlib import Path

from gateway.parameter_document import document
from gateway.parameter_table import PARAMETERS, Action
from gateway.settings import describe_settings

README = (Path(__file__).resolve().parents[3] / "README.md").read_text()


def rows() -> dict[str, str]:
    """First cell to second, of every table row whose first cell is in backticks."""
    return dict(re.findall(r"^\| `([^`]+)` \| ([^|]*) \|", README, flags=re.M))


def test_every_setting_is_documented_with_its_default() -> None:
    documented = {name: cell for name, cell in rows().items() if name.startswith("RADIXGATE_")}
    settled = {
        info.variable: f"`{info.default}`" if info.default else "" for info in describe_settings()
    }
    assert {name: cell.strip() for name, cell in documented.items()} == settled


def fields_said_to_be(what: str) -> set[str]:
    """Names in the rows of the table of fields that begin so."""
    section = README.split("\n## Endpoints and fields\n")[1].split("\n## ")[0]
    found = [line for line in section.splitlines() if line.startswith(f"| {what}")]
    return {name for line in found for name in re.findall(r"`([^`]+)`", line.split(" | ", 1)[1])}


def names_of(action: Action) -> set[str]:
    return {row.name for row in PARAMETERS if row.action is action}


def test_the_fields_that_the_readme_calls_implemented_are_all_that_are() -> None:
    assert fields_said_to_be("implemented") == {
        name for name in names_of(Action.IMPLEMENTED) if "." not in name
    }


def test_what_the_readme_calls_ignored_or_refused_is() -> None:
    ignored, refused = fields_said_to_be("ignored"), fields_said_to_be("refused")
    assert min(len(ignored), len(refused)) > 10
    assert ignored <= names_of(Action.IGNORED)
    assert refused <= names_of(Action.REFUSED)


def test_the_page_of_parameters_is_what_the_table_gives() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/parameters.md").read_text()
    assert page == document(), "run python -m gateway.parameter_document > docs/parameters.md"
