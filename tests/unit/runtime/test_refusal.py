"""How long it is known that a sequence finds no memory."""

import pytest

from runtime.refusal import LastRefusal, Room
from tests.engine_harness import make_sequence

ROOM = Room(num_running=4, num_available=10, num_joined=7)
LARGE, SMALL = make_sequence([1] * 90, key=0), make_sequence([1], key=1)


def refused() -> LastRefusal:
    refusal = LastRefusal()
    refusal.note(LARGE, ROOM)
    return refusal


def test_where_nothing_has_changed_it_would_be_refused_again() -> None:
    assert refused().concerns(LARGE, ROOM)
    assert refused().concerns(LARGE, Room(5, 9, 8))
    assert refused().is_final(ROOM)


@pytest.mark.parametrize("room", [Room(3, 10, 7), Room(4, 11, 7)])
def test_when_one_has_ended_or_a_page_is_free_it_is_asked_again(room: Room) -> None:
    assert not refused().is_final(room)
    assert not refused().concerns(LARGE, room)


def test_who_came_since_may_do_with_less() -> None:
    newer = Room(4, 10, 8)
    refusal = refused()
    assert not refusal.is_final(newer)
    assert refusal.concerns(LARGE, newer)
    assert refusal.is_final(newer)


def test_it_is_about_the_one_that_was_looked_at_last() -> None:
    refusal = refused()
    assert not refusal.concerns(SMALL, ROOM)
    assert not refusal.concerns(LARGE, ROOM)
    assert not refusal.is_final(ROOM)


def test_at_first_nobody_is_refused() -> None:
    assert not LastRefusal().is_final(ROOM)
    assert not LastRefusal().concerns(LARGE, ROOM)
