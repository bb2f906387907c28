"""A short run of `make soak`'s second half, and that it sees what it is for."""

import json

import pytest

from tests.soak.__main__ import main
from tests.soak.cache_command import MemoryWatch, fifths, is_flat

MIB = 2**20


@pytest.mark.timeout(60)
def test_random_requests_leave_the_cache_whole(capsys: pytest.CaptureFixture[str]) -> None:
    main(["cache", "--requests", "600", "--seed", "3"])
    found = json.loads(capsys.readouterr().out)
    assert found["requests"] >= 600
    assert found["faults"] == 0
    assert min(found[name] for name in SEEN) > 0


SEEN = (
    "aborted",
    "judged_answers",
    "evicted_pages",
    "most_pinned_pages",
    "questions",
    "preemptions",
    "rss_mib_late",
)


@pytest.mark.parametrize(
    ("growth_mib", "expected"),
    [(0.0, True), (0.02, True), (0.5, False), (2.0, False)],
    ids=["flat", "jitter", "leak", "large leak"],
)
def test_memory_that_grows_is_no_flat_memory(growth_mib: float, expected: bool) -> None:
    looks = [int((300 + growth_mib * number) * MIB) for number in range(100)]
    assert is_flat(looks) is expected


def test_what_comes_before_the_second_fifth_is_warming_up() -> None:
    looks = [10 * MIB] * 20 + [300 * MIB] * 80
    assert fifths(looks) == (300 * MIB, 300 * MIB)


def test_the_watch_looks_once_a_hundredth() -> None:
    watch = MemoryWatch()
    for number in range(1000):
        watch.look(number / 1000)
    assert len(watch.looks) == 100
    assert min(watch.looks) > MIB
