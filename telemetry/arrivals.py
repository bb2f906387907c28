"""When conversations begin in an open loop: times in seconds from the start of a load; pure."""

import random
from collections.abc import Iterator


def poisson_times(rate: float, *names: object) -> Iterator[float]:
    """A Poisson process of `rate` a second without an end: the same for the same names."""
    rng = random.Random("/".join(map(str, ("arrivals", *names))))
    at_s = 0.0
    while True:
        at_s += rng.expovariate(rate)
        yield at_s
