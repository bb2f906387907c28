"""How long a tier leaves alone what has just failed."""

import time
from collections.abc import Callable

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0


class Pause:
    """After a failure nothing is tried for a second, and after each further one, with no success
    between them, twice as long as before, a minute at most. Not thread-safe."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._length_s = 0.0
        self._until_s = 0.0

    @property
    def is_on(self) -> bool:
        return self._length_s > 0 and self._clock_s() < self._until_s

    def fail(self) -> bool:
        """Begins a pause. True for the first failure since the last success."""
        is_first = self._length_s == 0
        self._length_s = FIRST_PAUSE_S if is_first else min(2 * self._length_s, LONGEST_PAUSE_S)
        self._until_s = self._clock_s() + self._length_s
        return is_first

    def succeed(self) -> bool:
        """True for the first success after a failure."""
        is_first = self._length_s > 0
        self._length_s = 0.0
        return is_first
