"""Pages on disk: what is kept and what goes, in what order, for how many processes."""

import fcntl
import os
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from prefix_cache.tiers.disk_tier import DiskTier
from prefix_cache.tiers.page_file import encoded_len
from prefix_cache.tiers.page_folder import file_name
from prefix_cache.tiers.tier import PageKey, PageTier, StoredPage
from tests.tier_pages import key_of, page_of, payload_of, root_of

ROOT, OTHER_ROOT = root_of("model"), root_of("another model")
FILE_BYTES = encoded_len(key_of(0), payload_of(0))
MINUTE_NS = 60 * 10**9


@dataclass
class Clock:
    """A minute and a bit passes with each look, so that each use is written down."""

    now_ns: int = 1_700_000_000 * 10**9
    step_ns: int = MINUTE_NS + 1

    def __call__(self) -> int:
        self.now_ns += self.step_ns
        return self.now_ns


CLOCK = Clock()


def tier_in(
    folder: Path, *, num_pages: int = 100, root: bytes = ROOT, clock: Clock = CLOCK
) -> DiskTier:
    tier = DiskTier(folder, root=root, max_bytes=num_pages * FILE_BYTES, clock_ns=clock)
    tier.start()
    return tier


def path_of(folder: Path, number: int, *, root: bytes = ROOT) -> Path:
    return folder / file_name(root, key_of(number).identity)


def kept(folder: Path, *, root: bytes = ROOT) -> list[int]:
    return [number for number in range(40) if path_of(folder, number, root=root).exists()]


def bytes_in(folder: Path) -> int:
    return sum(
        path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.name != "root"
    )


def test_pages_outlive_the_process_that_stored_them(tmp_path: Path) -> None:
    first: PageTier = tier_in(tmp_path)
    first.store([page_of(number) for number in range(3)])
    first.close()
    second = tier_in(tmp_path)
    keys = [key_of(number) for number in range(5)]
    assert second.count_leading(keys) == 3
    assert second.fetch(keys) == [payload_of(number) for number in range(3)]
    assert (second.num_pages, second.num_bytes) == (3, 3 * FILE_BYTES)
    assert (second.counts.num_found, second.counts.num_missing) == (3, 2)


def test_only_what_comes_before_the_first_missing_page_is_found(tmp_path: Path) -> None:
    tier = tier_in(tmp_path)
    tier.store([page_of(0), page_of(2)])
    keys = [key_of(0), key_of(1), key_of(2)]
    assert tier.count_leading(keys) == 1
    assert tier.fetch(keys) == [payload_of(0)]
    assert tier.fetch(keys[1:]) == []


def test_what_another_process_writes_is_found_at_once(tmp_path: Path) -> None:
    reader, writer = tier_in(tmp_path), tier_in(tmp_path)
    writer.store([page_of(1)])
    assert reader.fetch([key_of(1)]) == [payload_of(1)]
    assert reader.num_pages == 1


def test_the_bound_holds_with_the_page_that_is_being_stored(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path, root=ROOT, max_bytes=3 * FILE_BYTES - 1, clock_ns=Clock())
    for number in range(5):
        tier.store([page_of(number)])
        assert tier.num_bytes == bytes_in(tmp_path) <= 3 * FILE_BYTES - 1
    assert kept(tmp_path) == [3, 4]


def test_a_page_larger_than_the_bound_is_dropped_and_costs_no_other(tmp_path: Path) -> None:
    tier = tier_in(tmp_path, num_pages=1)
    tier.store([page_of(1), page_of(2, num_bytes=300)])
    assert kept(tmp_path) == [1]
    assert tier.counts.dropped == {"too_large": 1}


def test_least_recently_used_pages_go_first(tmp_path: Path) -> None:
    tier = tier_in(tmp_path, num_pages=4)
    for number in range(4):
        tier.store([page_of(number)])
    tier.fetch([key_of(0)])
    tier.store([page_of(1)])
    tier.touch([key_of(2).identity, key_of(9).identity])
    tier.store([page_of(4)])
    assert kept(tmp_path) == [0, 1, 2, 4]
    assert tier.counts.num_stored == 5


def test_the_order_of_use_outlives_the_process(tmp_path: Path) -> None:
    tier = tier_in(tmp_path)
    tier.store([page_of(number) for number in range(4)])
    tier.fetch([key_of(3)])
    tier_in(tmp_path, num_pages=3).store([page_of(4)])
    assert kept(tmp_path) == [0, 3, 4]


def test_of_a_sequence_the_end_goes_before_the_beginning(tmp_path: Path) -> None:
    tier = tier_in(tmp_path, num_pages=3)
    tier.store([page_of(number) for number in range(3)])
    tier.store([page_of(3)])
    assert kept(tmp_path) == [0, 1, 3]


def test_what_another_process_has_used_stays(tmp_path: Path) -> None:
    ours, theirs = tier_in(tmp_path, num_pages=2), tier_in(tmp_path, num_pages=2)
    ours.store([page_of(0)])
    ours.store([page_of(1)])
    theirs.fetch([key_of(0)])
    ours.store([page_of(2)])
    assert kept(tmp_path) == [0, 2]


def test_what_another_process_has_used_since_we_looked_stays(tmp_path: Path) -> None:
    """With a bound so large that the folder is not walked before each page."""
    tier_in(tmp_path, num_pages=64).store([page_of(number) for number in range(64)])
    ours, theirs = tier_in(tmp_path, num_pages=64), tier_in(tmp_path, num_pages=64)
    theirs.fetch([key_of(63)])
    ours.store([page_of(64)])
    assert path_of(tmp_path, 63).exists()
    assert not path_of(tmp_path, 62).exists()


def test_a_use_that_was_not_written_down_counts_after_a_walk_all_the_same(tmp_path: Path) -> None:
    tier = tier_in(tmp_path, num_pages=2, clock=Clock(step_ns=1000))
    tier.store([page_of(0)])
    tier.store([page_of(1)])
    tier.fetch([key_of(0)])
    tier.start()
    tier.store([page_of(2)])
    assert kept(tmp_path) == [0, 2]


def test_a_use_is_written_down_once_a_minute(tmp_path: Path) -> None:
    tier = tier_in(tmp_path, clock=(clock := Clock(step_ns=0)))
    tier.store([page_of(0)])
    stored_ns = path_of(tmp_path, 0).stat().st_mtime_ns
    assert stored_ns == clock.now_ns
    clock.now_ns += MINUTE_NS - 1
    tier.fetch([key_of(0)])
    assert path_of(tmp_path, 0).stat().st_mtime_ns == stored_ns
    clock.now_ns += 1
    tier.fetch([key_of(0)])
    assert path_of(tmp_path, 0).stat().st_mtime_ns == clock.now_ns


def test_a_time_that_is_yet_to_come_is_set_right(tmp_path: Path) -> None:
    tier = tier_in(tmp_path, clock=(clock := Clock(step_ns=0)))
    tier.store([page_of(0)])
    os.utime(path_of(tmp_path, 0), ns=(clock.now_ns + MINUTE_NS, clock.now_ns + MINUTE_NS))
    tier.fetch([key_of(0)])
    assert path_of(tmp_path, 0).stat().st_mtime_ns == clock.now_ns


def test_pages_of_models_that_nobody_serves_go_before_our_older_ones(tmp_path: Path) -> None:
    ours = tier_in(tmp_path, num_pages=5)
    ours.store([page_of(0)])
    theirs = tier_in(tmp_path, num_pages=5, root=OTHER_ROOT)
    theirs.store([page_of(10)])
    theirs.store([page_of(11)])
    theirs.close()
    ours.close()
    again = tier_in(tmp_path, num_pages=3)
    again.store([page_of(1)])
    assert (kept(tmp_path), kept(tmp_path, root=OTHER_ROOT)) == ([0, 1], [11])
    again.store([page_of(2)])
    assert (kept(tmp_path), kept(tmp_path, root=OTHER_ROOT)) == ([0, 1, 2], [])


def test_pages_of_a_model_that_another_process_serves_go_by_age_alone(tmp_path: Path) -> None:
    theirs = tier_in(tmp_path, root=OTHER_ROOT)
    ours = tier_in(tmp_path, num_pages=3)
    ours.store([page_of(0)])
    theirs.store([page_of(10), page_of(11)])
    tier_in(tmp_path, num_pages=3).store([page_of(1)])
    assert (kept(tmp_path), kept(tmp_path, root=OTHER_ROOT)) == ([1], [10, 11])


def test_a_folder_of_a_model_without_pages_and_without_a_server_is_removed(tmp_path: Path) -> None:
    theirs = tier_in(tmp_path, root=OTHER_ROOT)
    theirs.store([page_of(10)])
    theirs.forget(None)
    tier_in(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    theirs.close()
    tier_in(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [ROOT.hex()[:32]]


def test_a_bound_that_became_smaller_holds_from_the_start_on(tmp_path: Path) -> None:
    tier_in(tmp_path).store([page_of(number) for number in range(5)])
    tier_in(tmp_path, num_pages=2)
    assert kept(tmp_path) == [0, 1]


def test_other_models_are_told_by_their_whole_roots(tmp_path: Path) -> None:
    ours, theirs = tier_in(tmp_path), tier_in(tmp_path, root=OTHER_ROOT)
    theirs.store([page_of(1)])
    (tmp_path / ("0" * 32)).mkdir()
    assert ours.other_roots() == [OTHER_ROOT]
    assert ours.holds(OTHER_ROOT, key_of(1).identity)
    assert not ours.holds(ROOT, key_of(1).identity)
    assert ours.fetch([key_of(1)]) == []


def test_a_page_of_another_model_in_our_place_is_rejected(tmp_path: Path) -> None:
    ours, theirs = tier_in(tmp_path), tier_in(tmp_path, root=OTHER_ROOT)
    theirs.store([page_of(1)])
    path_of(tmp_path, 1).parent.mkdir()
    path_of(tmp_path, 1, root=OTHER_ROOT).rename(path_of(tmp_path, 1))
    assert ours.fetch([key_of(1)]) == []
    assert ours.counts.rejected == {"root": 1}


def test_a_damaged_page_is_removed_and_counted_and_can_be_stored_anew(tmp_path: Path) -> None:
    tier = tier_in(tmp_path)
    tier.store([page_of(0), page_of(1), page_of(2)])
    with path_of(tmp_path, 1).open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(bytes([payload_of(1)[-1] ^ 1]))
    assert tier.fetch([key_of(0), key_of(1), key_of(2)]) == [payload_of(0)]
    assert tier.counts.rejected == {"checksum": 1}
    assert kept(tmp_path) == [0, 2]
    assert tier.num_bytes == 2 * FILE_BYTES
    tier.store([page_of(1)])
    assert tier.fetch([key_of(1)]) == [payload_of(1)]


def test_a_page_that_was_cut_is_rejected_and_storing_it_writes_it_anew(tmp_path: Path) -> None:
    tier = tier_in(tmp_path)
    tier.store([page_of(0), page_of(1)])
    os.truncate(path_of(tmp_path, 0), FILE_BYTES - 1)
    os.truncate(path_of(tmp_path, 1), 0)
    tier.store([page_of(0)])
    assert tier.fetch([key_of(0)]) == [payload_of(0)]
    assert tier.fetch([key_of(1)]) == []
    assert tier.counts.rejected == {"length": 1}


def test_other_tokens_under_the_same_identity_are_rejected(tmp_path: Path) -> None:
    tier = tier_in(tmp_path)
    tier.store([page_of(1)])
    assert tier.fetch([PageKey(key_of(1).identity, key_of(2).tokens)]) == []
    assert tier.counts.rejected == {"tokens": 1}


def test_pages_are_forgotten_by_name_or_all_of_this_model(tmp_path: Path) -> None:
    ours, theirs = tier_in(tmp_path), tier_in(tmp_path, root=OTHER_ROOT)
    ours.store([page_of(number) for number in range(4)])
    theirs.store([page_of(9)])
    ours.forget([key_of(2).identity, key_of(7).identity])
    assert kept(tmp_path) == [0, 1, 3]
    tier_in(tmp_path).store([page_of(5)])
    ours.forget(None)
    assert (kept(tmp_path), kept(tmp_path, root=OTHER_ROOT)) == ([], [9])
    assert ours.num_pages == 0


def test_folders_and_files_are_for_this_user_alone(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "cache"
    mask = os.umask(0)
    try:
        tier_in(folder).store([page_of(1)])
    finally:
        os.umask(mask)
    modes = {path.stat().st_mode & 0o777 for path in folder.rglob("*") if path.is_file()}
    assert modes == {0o600}
    folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o700}


def test_leftovers_of_dead_writers_are_removed_and_drafts_of_living_ones_are_not(
    tmp_path: Path,
) -> None:
    tier_in(tmp_path).close()
    own = tmp_path / ROOT.hex()[:32]
    (own / "dead.tmp").write_bytes(b"x" * 100)
    living = (own / "living.tmp").open("wb")
    fcntl.flock(living, fcntl.LOCK_EX)
    tier_in(tmp_path)
    assert [path.name for path in own.glob("*.tmp")] == ["living.tmp"]
    living.close()


def test_what_is_not_ours_in_the_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    own = tmp_path / ROOT.hex()[:32]
    (own / "ab").mkdir(parents=True)
    (own / "ab" / "README").write_text("mine")
    tier = tier_in(tmp_path, num_pages=1)
    tier.store([page_of(1)])
    tier.store([page_of(2)])
    tier.forget(None)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert (own / "ab" / "README").read_text() == "mine"


def test_links_lead_nowhere(tmp_path: Path) -> None:
    inside, outside = tmp_path / "cache", tmp_path / "outside"
    tier_in(outside).store([page_of(number) for number in range(4)])
    tier = tier_in(inside)
    # A link in the place of a file, and one in the place of a folder.
    path_of(inside, 0).parent.mkdir()
    path_of(inside, 0).symlink_to(path_of(outside, 0))
    path_of(inside, 1).parent.symlink_to(path_of(outside, 1).parent)
    assert tier.fetch([key_of(0)]) == tier.fetch([key_of(1)]) == []
    tier.start()
    assert tier.num_pages == 0
    tier.store([page_of(0), page_of(1)])
    tier.forget(None)
    assert kept(outside) == [0, 1, 2, 3]
    assert tier.counts.num_stored == 2


def test_a_link_in_the_place_of_our_folder_leads_nowhere(tmp_path: Path) -> None:
    inside, outside = tmp_path / "cache", tmp_path / "outside"
    tier_in(outside).store([page_of(0)])
    inside.mkdir()
    (inside / ROOT.hex()[:32]).symlink_to(outside / ROOT.hex()[:32])
    tier = tier_in(inside)
    assert tier.fetch([key_of(0)]) == []
    tier.store([page_of(1)])
    tier.forget(None)
    assert kept(outside) == [0]


@pytest.mark.parametrize("kind", ["folder", "pipe", "link to nothing", "long"])
def test_what_is_no_page_in_the_place_of_one_is_rejected_and_keeps_nobody_waiting(
    tmp_path: Path, kind: str
) -> None:
    tier = tier_in(tmp_path)
    place = path_of(tmp_path, 0)
    place.parent.mkdir()
    if kind == "folder":
        place.mkdir()
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind == "link to nothing":
        place.symlink_to("nothing")
    else:
        place.touch()
        os.truncate(place, 1 << 40)
    assert tier.fetch([key_of(0)]) == []
    assert sum(tier.counts.rejected.values()) == 1
    assert tier.is_up
    assert tier.counts.num_failures == 0
    tier.store([page_of(1)])
    assert tier.fetch([key_of(1)]) == [payload_of(1)]


def test_what_two_processes_write_is_bounded_together(tmp_path: Path) -> None:
    tiers = [tier_in(tmp_path, num_pages=64) for _ in range(2)]
    for number in range(200):
        tiers[number % 2].store([page_of(number)])
        # One 32nd more for the other process, and the page that follows it.
        assert bytes_in(tmp_path) <= (64 + 2 + 1) * FILE_BYTES
    assert bytes_in(tmp_path) >= 60 * FILE_BYTES


def test_threads_store_fetch_and_forget_at_once(tmp_path: Path) -> None:
    tier = tier_in(tmp_path, num_pages=20)
    wrong: list[int] = []

    def store() -> None:
        for number in range(300):
            tier.store([page_of(number % 50)])
            if number % 40 == 0:
                tier.forget([key_of(number % 50).identity])

    def fetch() -> None:
        for number in range(300):
            for found in tier.fetch([key_of(number * 7 % 50)]):
                if found != payload_of(number * 7 % 50):
                    wrong.append(number)

    threads = [threading.Thread(target=work) for work in (store, fetch, fetch)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert tier.counts.num_failures == 0
    assert tier.counts.num_fetched > 0
    tier.start()
    assert tier.num_bytes == bytes_in(tmp_path) <= 20 * FILE_BYTES


def test_a_payload_in_a_buffer_is_stored(tmp_path: Path) -> None:
    tier = tier_in(tmp_path)
    buffer = bytearray(payload_of(1))
    tier.store([StoredPage(key_of(1), memoryview(buffer))])
    buffer[:] = bytes(len(buffer))
    assert tier.fetch([key_of(1)]) == [payload_of(1)]
