"""What the disk tier does about a disk that is full, gone, slow to come back, or read-only."""

import errno
import logging
import os
import shutil
from pathlib import Path

import pytest

from prefix_cache.tiers.disk_tier import DiskTier
from prefix_cache.tiers.page_file import encoded_len
from tests.faulty_os import failing
from tests.tier_pages import key_of, page_of, payload_of, root_of

ROOT = root_of("model")
FILE_BYTES = encoded_len(key_of(0), payload_of(0))
WRITES = {"writev", "mkdir", "utime", "replace", "unlink"}


class Seconds:
    def __init__(self) -> None:
        self.now_s = 50.0

    def __call__(self) -> float:
        return self.now_s


def tier_in(folder: Path, seconds: Seconds, *, num_pages: int = 10) -> DiskTier:
    tier = DiskTier(folder, root=ROOT, max_bytes=num_pages * FILE_BYTES, monotonic_s=seconds)
    tier.start()
    return tier


def states_of(tier: DiskTier, seconds: Seconds, *passing_s: float) -> list[bool]:
    """Whether it is up after each of these times."""
    states = []
    for one_s in passing_s:
        seconds.now_s += one_s
        states.append(tier.is_up)
    return states


def test_a_disk_that_only_reads_serves_what_it_has(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tier = tier_in(tmp_path, seconds := Seconds())
    tier.store([page_of(0)])
    with caplog.at_level(logging.INFO), failing(errno.EROFS, names=WRITES):
        tier.store([page_of(1), page_of(2), page_of(3)])
        assert tier.fetch([key_of(0)]) == [payload_of(0)]
        assert tier.is_up
        seconds.now_s += 1
        tier.store([page_of(4)])
    assert tier.counts.dropped == {"failed": 2, "down": 2}
    assert (tier.counts.num_failures, tier.counts.num_openings) == (2, 1)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert os.strerror(errno.EROFS) in caplog.text
    tier.store([page_of(5)])
    assert tier.counts.dropped["down"] == 3
    seconds.now_s += 2
    with caplog.at_level(logging.INFO):
        tier.store([page_of(5), page_of(6)])
    assert tier.fetch([key_of(5), key_of(6)]) == [payload_of(5), payload_of(6)]
    assert caplog.messages[-1].endswith("can be written again")


@pytest.mark.parametrize("identities", [None, [key_of(0).identity]])
def test_what_is_to_be_forgotten_is_not_read_although_it_cannot_be_removed(
    identities: list[bytes] | None, tmp_path: Path
) -> None:
    keys = [key_of(0), key_of(1)]
    tier = tier_in(tmp_path, seconds := Seconds())
    tier.store([page_of(0), page_of(1)])
    with failing(errno.EROFS, names=WRITES):
        tier.forget(identities)
        assert tier.fetch(keys) == []
    assert tier.fetch(keys) == []
    seconds.now_s += 1
    tier.store([page_of(2)])
    assert DiskTier(tmp_path, root=ROOT, max_bytes=FILE_BYTES).fetch(keys) == []
    tier.store([page_of(0)])
    assert tier.count_leading(keys[:1]) == 1
    assert tier.fetch(keys[:1]) == [payload_of(0)]


def test_a_disk_that_cannot_be_written_and_has_nothing_is_down(tmp_path: Path) -> None:
    with failing(errno.ENOSPC, names={"makedirs", "mkdir", "writev"}):
        tier = tier_in(tmp_path / "cache", seconds := Seconds())
        tier.store([page_of(0)])
        assert states_of(tier, seconds, 0, 0.9, 0.1) == [False, False, True]
        tier.store([page_of(0)])
    assert tier.counts.dropped == {"down": 1, "full": 1}
    assert tier.count_leading([key_of(0)]) == 0
    assert states_of(tier, seconds, 0, 1, 1) == [False, False, True]
    tier.store([page_of(0)])
    assert tier.fetch([key_of(0)]) == [payload_of(0)]


def test_on_a_full_disk_older_pages_make_room(tmp_path: Path) -> None:
    tier = tier_in(tmp_path, Seconds())
    tier.store([page_of(0)])
    tier.store([page_of(1)])
    with failing(errno.ENOSPC, names={"writev"}, last=1) as failed:
        tier.store([page_of(2)])
    assert failed == ["writev"]
    assert tier.fetch([key_of(2)]) == [payload_of(2)]
    assert tier.count_leading([key_of(0)]) == 0
    assert tier.count_leading([key_of(1)]) == 1
    assert tier.counts.num_failures == 0
    assert drafts_in(tmp_path) == []


def test_a_write_that_is_cut_short_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.writev
    monkeypatch.setattr(
        os, "writev", lambda fd, views: real(fd, [views[0][: max(1, len(views[0]) // 2)]])
    )
    tier = tier_in(tmp_path, Seconds())
    tier.store([page_of(0)])
    assert tier.fetch([key_of(0)]) == [payload_of(0)]


def test_a_disk_that_cannot_be_read_is_down_and_comes_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tier = tier_in(tmp_path, seconds := Seconds())
    tier.store([page_of(0)])
    with caplog.at_level(logging.INFO), failing(errno.EIO) as failed:
        assert tier.fetch([key_of(0)]) == []
        num_failed = len(failed)
        assert tier.fetch([key_of(0)]) == []
        assert tier.count_leading([key_of(0)]) == 0
        assert len(failed) == num_failed  # nothing was asked of it
        assert states_of(tier, seconds, 0, 0.9, 0.1) == [False, False, True]
        assert tier.count_leading([key_of(0)]) == 0
        assert states_of(tier, seconds, 0, 1.9, 0.1) == [False, False, True]
    with caplog.at_level(logging.INFO):
        assert tier.fetch([key_of(0)]) == [payload_of(0)]
    assert tier.is_up
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert (tier.counts.num_failures, tier.counts.num_openings) == (2, 1)


def test_a_folder_that_vanishes_is_made_anew(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    tier = tier_in(folder, Seconds())
    tier.store([page_of(0), page_of(1)])
    shutil.rmtree(folder)
    assert tier.count_leading([key_of(0)]) == 0
    assert tier.fetch([key_of(0)]) == []
    tier.touch([key_of(0).identity])
    tier.forget([key_of(0).identity])
    tier.store([page_of(0), page_of(2)])
    assert tier.fetch([key_of(0)]) == [payload_of(0)]
    assert tier.counts.num_failures == 0
    # It is ours again for other processes, too.
    other = DiskTier(folder, root=root_of("another"), max_bytes=0)
    other.start()
    assert tier.fetch([key_of(0)]) == []
    assert other.other_roots() == [ROOT]


def test_a_file_in_the_place_of_the_folder_is_no_crash(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.write_text("mine")
    tier = tier_in(folder, seconds := Seconds())
    for _ in range(3):
        seconds.now_s += 100
        tier.store([page_of(0)])
        seconds.now_s += 100
        assert tier.fetch([key_of(0)]) == []
        assert tier.count_leading([key_of(0)]) == 0
        tier.touch([key_of(0).identity])
        tier.forget(None)
        assert tier.other_roots() == []
        assert not tier.holds(ROOT, key_of(0).identity)
    assert folder.read_text() == "mine"
    assert tier.counts.num_failures > 3


@pytest.mark.parametrize("errno_", [errno.EIO, errno.ENOSPC, errno.EACCES, errno.ENOENT])
def test_no_single_failure_raises_or_leaves_a_draft_or_a_wrong_page(
    tmp_path: Path, errno_: int
) -> None:
    for at in range(1, 200):
        seconds = Seconds()
        folder = tmp_path / str(at)
        with failing(errno_, first=at, last=at) as failed:
            tier = tier_in(folder, seconds, num_pages=2)
            for number in range(4):
                seconds.now_s += 100
                tier.store([page_of(number)])
                assert tier.fetch([key_of(number)]) in ([], [payload_of(number)])
            tier.touch([key_of(3).identity])
            tier.forget([key_of(3).identity])
        if not failed:
            break
        seconds.now_s += 100
        tier.start()
        tier.store([page_of(8), page_of(9)])
        assert tier.fetch([key_of(8), key_of(9)]) == [payload_of(8), payload_of(9)]
        assert drafts_in(folder) == []
        assert tier.num_bytes == 2 * FILE_BYTES
        tier.close()
    else:
        raise AssertionError("it never came to an end")
    assert at > 50


def drafts_in(folder: Path) -> list[Path]:
    return list(folder.rglob("*.tmp"))
