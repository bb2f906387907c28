"""The table of published figures: it is the one in the docs, and the planner is near them."""

import re
import statistics
from pathlib import Path

from planning.published import FIGURES, table

ROOT = Path(__file__).resolve().parents[3]


def test_the_docs_have_the_table_that_the_program_prints() -> None:
    page = (ROOT / "docs/plan.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- published -->\n(.*?)<!-- end -->", page, re.S)
    assert found is not None
    assert found[1] == table(), "python -m planning.published prints it anew"


def test_four_of_five_figures_are_predicted_within_thirty_percent() -> None:
    near = [one for one in FIGURES if 0.7 <= one.ratio <= 1.3]
    assert len(near) >= 0.8 * len(FIGURES)


def test_none_is_off_by_more_than_twice() -> None:
    assert [one for one in FIGURES if not 0.5 <= one.ratio <= 2.0] == []


def test_predictions_are_not_off_to_one_side() -> None:
    assert 0.85 < statistics.median(one.ratio for one in FIGURES) < 1.15
