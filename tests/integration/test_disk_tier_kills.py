"""A process that stores pages on disk is killed at any moment, while another one reads them."""

from pathlib import Path

from tests.tier_kills import Kills


def test_writers_that_are_killed_leave_no_wrong_page_and_no_trouble(tmp_path: Path) -> None:
    report = Kills(tmp_path, seed=1).play(20)
    assert report.wrong == []
    assert report.rejected == {}
    assert report.num_failures == 0
    assert report.num_fetched > 400
    assert report.max_bytes / 2 < report.most_bytes <= report.max_bytes
