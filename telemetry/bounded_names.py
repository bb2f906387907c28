"""Label values that come from outside, so many of them at the most. Owned by what counts them."""

import threading

from telemetry.metric_definition import OTHER


class BoundedNames:
    """Lets a limited number of distinct label values through; the rest become one. Thread-safe."""

    def __init__(self, max_names: int) -> None:
        self._max_names = max_names
        self._names: set[str] = set()
        self._lock = threading.Lock()

    def admit(self, name: str) -> str:
        with self._lock:
            if name in self._names:
                return name
            if len(self._names) >= self._max_names:
                return OTHER
            self._names.add(name)
            return name
