"""Questions about the cache that wait for the runtime, and those whose answer takes longer.

Owned by RuntimeLoop, in its thread. One question is begun between two steps, as running requests
wait for it meanwhile; what a lower tier has to be asked for comes when it is there.
"""

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from runtime.cache_messages import CacheAnswer, CacheFault, CacheQuery

logger = logging.getLogger(__name__)

MAX_QUESTIONS = 256

TOO_MANY_QUESTIONS = "too many questions about the cache wait; ask again later"
NO_ANSWER = "the runtime could not answer this question; its log says why"

# An answer, or one that another thread will give.
AnswerOrFuture = CacheAnswer | Future[CacheAnswer]


class QuestionQueue:
    """`answer` is the engine's; `ring` ends the loop's sleep, from any thread."""

    def __init__(
        self, answer: Callable[[CacheQuery], AnswerOrFuture], *, ring: Callable[[], None]
    ) -> None:
        self._answer = answer
        self._ring = ring
        self._waiting: deque[tuple[bytes, CacheQuery]] = deque()
        self._open: list[tuple[bytes, CacheQuery, Future[CacheAnswer]]] = []

    def add(self, gateway: bytes, query: CacheQuery) -> CacheFault | None:
        """Takes a question, or says at once why not."""
        if len(self._waiting) + len(self._open) >= MAX_QUESTIONS:
            return CacheFault(query.request_id, TOO_MANY_QUESTIONS, is_busy=True)
        self._waiting.append((gateway, query))
        return None

    def has_work(self) -> bool:
        return bool(self._waiting) or any(future.done() for _, _, future in self._open)

    def take_answers(self) -> list[tuple[bytes, CacheAnswer]]:
        """Begins one question; returns the answers that are there, each with who asked."""
        if self._waiting:
            gateway, query = self._waiting.popleft()
            self._open.append((gateway, query, self._begin(query)))
        done = [entry for entry in self._open if entry[2].done()]
        self._open = [entry for entry in self._open if not entry[2].done()]
        return [(gateway, _outcome(query, future)) for gateway, query, future in done]

    def _begin(self, query: CacheQuery) -> Future[CacheAnswer]:
        future: Future[CacheAnswer] = Future()
        try:
            answer = self._answer(query)
        except Exception as error:
            future.set_exception(error)
        else:
            if isinstance(answer, Future):
                answer.add_done_callback(lambda _: self._ring())
                return answer
            future.set_result(answer)
        return future


def _outcome(query: CacheQuery, future: Future[CacheAnswer]) -> CacheAnswer:
    error = future.exception()
    if error is None:
        return future.result()
    logger.error("question %r could not be answered", query.request_id[:200], exc_info=error)
    return CacheFault(query.request_id, NO_ANSWER)
