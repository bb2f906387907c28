"""A server that failed is left alone, ever longer, until one call finds it well."""

import logging

import pytest

from prefix_cache.tiers.breaker import FIRST_PAUSE_S, MAX_PAUSE_S, Breaker, BreakerOpen


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker("Redis", clock=clock)


def is_asked(breaker: Breaker) -> bool:
    """Whether a call would be made; leaves things as they were."""
    try:
        breaker.leave(is_trial=breaker.enter())
    except BreakerOpen:
        return False
    return True


def test_after_a_failure_nothing_is_asked_until_the_pause_is_over(
    breaker: Breaker, clock: Clock
) -> None:
    assert breaker.enter() is False
    breaker.fail("timeout")
    assert not breaker.is_up
    clock.now += FIRST_PAUSE_S - 0.01
    with pytest.raises(BreakerOpen, match="Redis failed a moment ago"):
        breaker.enter()
    clock.now += 0.01
    assert (breaker.enter(), breaker.is_up) == (True, False)
    breaker.succeed(is_trial=True)
    assert (breaker.enter(), breaker.is_up) == (False, True)


def test_one_call_tries_and_the_others_wait_for_what_it_finds(
    breaker: Breaker, clock: Clock
) -> None:
    breaker.fail("refused")
    clock.now += FIRST_PAUSE_S
    assert breaker.enter() is True
    assert not is_asked(breaker)
    breaker.leave(is_trial=True)  # it found nothing out
    assert breaker.enter() is True


def test_pauses_double_to_a_limit(breaker: Breaker, clock: Clock) -> None:
    breaker.fail("refused")
    for pause_s in (1, 2, 4, 8, 16, 30, 30):
        clock.now += pause_s - 0.5
        assert not is_asked(breaker)
        clock.now += 0.5
        breaker.fail("refused", is_trial=breaker.enter())
    assert breaker.num_openings == 1
    assert breaker.failures() == {"refused": 8}


def test_one_that_answers_for_a_moment_only_is_left_alone_ever_longer(
    breaker: Breaker, clock: Clock
) -> None:
    openings = []
    for _ in range(300):  # seconds
        if is_asked(breaker):
            breaker.succeed(is_trial=breaker.enter())
            breaker.fail("full")
            openings.append(clock.now - 100)
        clock.now += 1
    assert openings[:6] == [0, 1, 3, 7, 15, 31]
    assert breaker.num_openings == len(openings) < 16


def test_one_that_was_well_for_long_begins_anew(breaker: Breaker, clock: Clock) -> None:
    for _ in range(3):
        breaker.fail("timeout", is_trial=False)
        clock.now += MAX_PAUSE_S
        breaker.succeed(is_trial=breaker.enter())
        clock.now += MAX_PAUSE_S
    breaker.fail("timeout")
    clock.now += FIRST_PAUSE_S
    assert is_asked(breaker)


def test_calls_under_way_when_it_fails_count_and_do_not_lengthen_the_pause(
    breaker: Breaker, clock: Clock
) -> None:
    for _ in range(5):
        breaker.fail("timeout")
    breaker.succeed(is_trial=False)  # it was sent before, and answered late
    assert not breaker.is_up
    assert (breaker.num_failures, breaker.num_openings) == (5, 1)
    clock.now += FIRST_PAUSE_S
    assert is_asked(breaker)


def test_the_log_has_one_line_when_it_opens_and_one_when_it_closes(
    breaker: Breaker, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    breaker.fail("full", "OOM command not allowed")
    breaker.fail("full")
    clock.now += 1
    breaker.fail("full", is_trial=breaker.enter())
    clock.now += 2
    breaker.succeed(is_trial=breaker.enter())
    assert caplog.messages == [
        "Redis failed (full: OOM command not allowed); going on without it",
        "Redis answers again",
    ]
