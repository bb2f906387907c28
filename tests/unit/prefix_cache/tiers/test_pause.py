"""How long what has failed is left alone."""

from prefix_cache.tiers.pause import Pause


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def length_of(pause: Pause, clock: Clock) -> float:
    start_s = clock.now_s
    while pause.is_on:
        clock.now_s += 0.5
    return clock.now_s - start_s


def test_pauses_double_up_to_a_minute_until_something_succeeds() -> None:
    pause = Pause(clock := Clock())
    lengths = []
    for _ in range(8):
        pause.fail()
        lengths.append(length_of(pause, clock))
    assert lengths == [1, 2, 4, 8, 16, 32, 60, 60]
    pause.succeed()
    pause.fail()
    assert length_of(pause, clock) == 1


def test_the_first_failure_and_the_first_success_are_told_apart() -> None:
    pause = Pause(Clock())
    assert [pause.is_on, pause.succeed()] == [False, False]
    assert [pause.fail(), pause.fail(), pause.is_on] == [True, False, True]
    assert [pause.succeed(), pause.succeed(), pause.is_on] == [True, False, False]
    assert pause.fail()
