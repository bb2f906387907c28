"""kill -9 of a runtime that writes its pages to disk: the next finds them, and none is wrong."""

from pathlib import Path

import pytest

from tests.runtime_kills import DISK_BYTES, RuntimeKills


@pytest.mark.timeout(90)  # two starts of a runtime, on a machine that may be busy
async def test_answers_after_a_kill_are_those_of_no_cache(tmp_path: Path) -> None:
    report = await RuntimeKills(tmp_path, seed=1, num_prefixes=1).play(1)
    assert report.wrong == []
    assert report.num_answers == 6
    assert report.restored_tokens > 0
    assert (report.rejected, report.failures) == (0, 0)
    assert 0 < report.most_bytes <= DISK_BYTES
