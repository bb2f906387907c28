"""When conversations begin in an open loop: times in seconds from the start of a load; pure."""

import random
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import TypeVar

_Thing = TypeVar("_Thing")


def poisson_times(rate: float, *names: object) -> Iterator[float]:
    """A Poisson process of `rate` a second without an end: the same for the same names."""
    rng = random.Random("/".join(map(str, ("arrivals", *names))))
    at_s = 0.0
    while True:
        at_s += rng.expovariate(rate)
        yield at_s


def until(
    timed: Iterable[tuple[float, _Thing]], duration_s: float | None
) -> Iterator[tuple[float, _Thing]]:
    """Those that begin within the duration; None = all."""
    if duration_s is None:
        return iter(timed)
    return takewhile(lambda one: one[0] < duration_s, timed)
