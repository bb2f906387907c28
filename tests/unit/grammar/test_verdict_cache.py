"""What a probe remembers: as much as fits, and failures for a while."""

import pytest

from grammar.errors import ConstraintTooExpensive
from grammar.probe_frames import Verdict
from grammar.spec import PreparedConstraint
from grammar.verdict_cache import ENTRY_BYTES, MAX_TOO_EXPENSIVE, TOO_EXPENSIVE_S, VerdictCache

GRAMMAR_CHARS = 1000


def verdict(letter: str = "x") -> Verdict:
    return Verdict(1.0, PreparedConstraint("llguidance", "lark", letter * GRAMMAR_CHARS))


class Clock:
    now = 50.0

    def __call__(self) -> float:
        return self.now


def room_for(num_verdicts: int, clock: Clock | None = None) -> VerdictCache:
    return VerdictCache(num_verdicts * (ENTRY_BYTES + GRAMMAR_CHARS), clock=clock or Clock())


def test_the_least_recently_used_verdict_goes_first() -> None:
    cache = room_for(2)
    cache.put("a", verdict("a"))
    cache.put("b", verdict("b"))
    assert cache.get("a") == verdict("a")
    cache.put("c", verdict("c"))
    assert cache.get("b") is None
    assert cache.get("a") is not None
    assert cache.get("c") is not None


def test_bytes_count_and_not_entries() -> None:
    cache = room_for(3)
    for key in "abcde":
        cache.put(key, Verdict(1.0, reason="no"))
    assert all(cache.get(key) for key in "abcde"), "short ones leave room"
    cache.put("large", Verdict(1.0, PreparedConstraint("llguidance", "lark", "x" * 4000)))
    assert cache.num_bytes <= 3 * (ENTRY_BYTES + GRAMMAR_CHARS)
    assert cache.get("large") is not None
    assert cache.get("a") is None


def test_a_verdict_larger_than_the_cache_is_not_kept() -> None:
    cache = VerdictCache(ENTRY_BYTES, clock=Clock())
    cache.put("a", verdict())
    assert (cache.get("a"), cache.num_bytes) == (None, 0)


def test_putting_it_again_takes_no_more_room() -> None:
    cache = room_for(2)
    for _ in range(5):
        cache.put("a", verdict())
    assert cache.num_bytes == ENTRY_BYTES + GRAMMAR_CHARS


def test_what_was_too_expensive_is_so_for_a_while() -> None:
    clock = Clock()
    cache = room_for(1, clock)
    cache.put_too_expensive("a", ConstraintTooExpensive("2 s"))
    clock.now += TOO_EXPENSIVE_S - 1
    with pytest.raises(ConstraintTooExpensive, match="2 s"):
        cache.get("a")
    clock.now += 1
    assert cache.get("a") is None


def test_failures_are_bounded_too() -> None:
    cache = room_for(1)
    for number in range(MAX_TOO_EXPENSIVE + 1):
        cache.put_too_expensive(str(number), ConstraintTooExpensive("2 s"))
    assert cache.get("0") is None
    with pytest.raises(ConstraintTooExpensive):
        cache.get("1")
