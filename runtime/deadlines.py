"""When requests expire. Owns a heap of deadlines, so that a step need not look at every request.

Asked by the engine at each step. Holds keys and no requests, as those are large and most end long
before their deadline.
"""

import heapq

RequestKey = tuple[bytes, str]


class Deadlines:
    """Each request by its queue deadline and by its final one, those that it has."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, RequestKey]] = []

    def add(self, key: RequestKey, *deadlines_ns: int) -> None:
        """A deadline of 0 is none."""
        for deadline_ns in deadlines_ns:
            if deadline_ns:
                heapq.heappush(self._heap, (deadline_ns, key))

    def take_due(self, now_ns: int) -> list[RequestKey]:
        """Of which a deadline has passed since the last call, the first to pass first. Whether
        the request is there still, and the deadline matters, is the caller's to see."""
        due = []
        while self._heap and self._heap[0][0] <= now_ns:
            due.append(heapq.heappop(self._heap)[1])
        return due
