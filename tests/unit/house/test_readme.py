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


def test_every_field_that_the_readme_calls_implemented_is() -> None:
    row = next(line for line in README.splitlines() if line.endswith("| implemented |"))
    claimed = set(re.findall(r"`([^`]+)`", row))
    implemented = {
        parameter.name for parameter in PARAMETERS if parameter.action is Action.IMPLEMENTED
    }
    assert len(claimed) > 20
    assert claimed <= implemented


def test_the_page_of_parameters_is_what_the_table_gives() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/parameters.md").read_text()
    assert page == document(), "run python -m gateway.parameter_document > docs/parameters.md"
