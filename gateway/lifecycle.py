"""Whether the server is being stopped: set by the signal handler, read by /ready and by routes."""


class Lifecycle:
    """One per process; only the event loop's thread touches it."""

    def __init__(self) -> None:
        self._is_draining = False

    @property
    def is_draining(self) -> bool:
        return self._is_draining

    def drain(self) -> None:
        """From now on new requests are refused and those in flight finish."""
        self._is_draining = True
