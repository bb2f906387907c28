"""Nothing is asked of a server that just failed: after a failure there is a pause, then one call
tries, and as long as it fails the pauses double. Called from any thread.
"""

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Literal

FIRST_PAUSE_S = 1.0
MAX_PAUSE_S = 30.0

# `full` and `readonly` refuse what writes only; `garbage` is no answer, or pages that are none.
FailureKind = Literal[
    "refused", "timeout", "closed", "garbage", "full", "readonly", "auth", "moved", "busy", "error"
]

logger = logging.getLogger(__name__)


class BreakerOpen(Exception):
    """It failed a moment ago and is not asked."""


class Breaker:
    """Counts failures by kind, and how often it opened. One line in the log when it opens and one
    when it closes."""

    def __init__(self, name: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`name` is how the log calls the server."""
        self._name = name
        self._clock = clock
        self._lock = threading.Lock()
        self._pause_s = 0.0
        self._last_pause_s = 0.0
        self._up_since = -math.inf
        self._retry_at = 0.0
        self._is_trying = False
        self._failures: Counter[FailureKind] = Counter()
        self._num_openings = 0

    @property
    def is_up(self) -> bool:
        """Whether the last call that counts was answered; True before the first."""
        return not self._pause_s

    @property
    def num_openings(self) -> int:
        return self._num_openings

    @property
    def num_failures(self) -> int:
        return self.failures().total()

    def failures(self) -> "Counter[FailureKind]":
        """A copy, by kind."""
        with self._lock:
            return self._failures.copy()

    def enter(self) -> bool:
        """Before a call: whether it is the one that tries. Its end is told to
        succeed(), fail() or leave().

        Raises: BreakerOpen.
        """
        with self._lock:
            if self.is_up:
                return False
            if self._is_trying or self._clock() < self._retry_at:
                raise BreakerOpen(f"{self._name} failed a moment ago")
            self._is_trying = True
            return True

    def succeed(self, *, is_trial: bool) -> None:
        with self._lock:
            if not is_trial:
                return
            self._is_trying = False
            self._last_pause_s, self._pause_s = self._pause_s, 0.0
            self._up_since = self._clock()
        logger.info("%s answers again", self._name)

    def leave(self, *, is_trial: bool) -> None:
        """The call said nothing about the server: another one may try."""
        with self._lock:
            self._is_trying = self._is_trying and not is_trial

    def fail(self, kind: FailureKind, detail: str = "", *, is_trial: bool = False) -> None:
        """`detail` is for the log, and holds no secret."""
        with self._lock:
            self._failures[kind] += 1
            was_up = self.is_up
            if is_trial:
                self._is_trying = False
            elif not was_up:  # it was sent before the breaker knew
                return
            # A server that answers for a moment between failures is left alone ever longer.
            is_again = was_up and self._clock() - self._up_since < MAX_PAUSE_S
            last_pause_s = self._last_pause_s if is_again else self._pause_s
            self._pause_s = min(MAX_PAUSE_S, max(FIRST_PAUSE_S, 2 * last_pause_s))
            self._retry_at = self._clock() + self._pause_s
            self._num_openings += was_up
        if was_up:
            reason = f"{kind}: {detail}" if detail else kind
            logger.warning("%s failed (%s); going on without it", self._name, reason)
