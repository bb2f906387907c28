"""One line when a collector begins to fail and one when it works again, instead of the SDK's line
for each attempt. Used by what exports traces and metrics.
"""

import logging
import threading
from collections.abc import Iterable


class LastWords(logging.Filter):
    """Keeps the SDK's records out of the log and remembers the latest of each thread."""

    def __init__(self) -> None:
        super().__init__()
        self._local = threading.local()

    def silence(self, loggers: Iterable[str]) -> None:
        """Of these the records are kept; saying so twice changes nothing."""
        for name in loggers:
            logging.getLogger(name).addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        self.keep(record.getMessage())
        return False

    def keep(self, message: str) -> None:
        self._local.message = message

    def take(self) -> str:
        message: str = getattr(self._local, "message", "no reason given")
        return message


# One object for all exporters: each adds it to the loggers that it knows of.
last_words = LastWords()


class Outage:
    """Whether a collector fails. `what` is sent to `target`; `consequence` says what of it."""

    def __init__(self, logger: logging.Logger, what: str, *, target: str, consequence: str) -> None:
        self._logger = logger
        self._what = what
        self._target = target
        self._consequence = consequence
        self._is_on = False

    def note(self, is_exported: bool) -> None:
        """An attempt came to this."""
        if self._is_on is not is_exported:
            return
        self._is_on = not is_exported
        if is_exported:
            self._logger.info("%s are exported to %s again", self._what, self._target)
        else:
            self._logger.warning(
                "%s cannot be exported to %s (%s); requests are not affected, %s, and this is not"
                " repeated until it worked again",
                self._what,
                self._target,
                last_words.take(),
                self._consequence,
            )
