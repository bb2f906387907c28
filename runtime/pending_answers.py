"""Questions that were sent to a runtime and wait for their answers, by request id.

Owned by a RemoteEngine, in its event loop. Nothing stays behind of a question whose caller is
gone, and each is answered, refused, or given up after a while.
"""

import asyncio

from runtime.cache_messages import CacheAnswer
from runtime.token_engine import EngineUnavailable


class PendingAnswers:
    """`timeout_s` bounds the wait for one answer; it must exceed the longest step."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._futures: dict[str, asyncio.Future[CacheAnswer]] = {}

    def __len__(self) -> int:
        return len(self._futures)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._futures

    async def wait_for(self, request_id: str) -> CacheAnswer:
        """The answer to a question that has just been sent. Raises: EngineUnavailable."""
        future: asyncio.Future[CacheAnswer] = asyncio.get_running_loop().create_future()
        self._futures[request_id] = future
        try:
            async with asyncio.timeout(self._timeout_s):
                return await future
        except TimeoutError:
            reason = f"the runtime did not answer within {self._timeout_s:g} s"
            raise EngineUnavailable(reason) from None
        finally:
            del self._futures[request_id]

    def deliver(self, answer: CacheAnswer) -> None:
        """An answer that nobody waits for any more is dropped."""
        future = self._futures.get(answer.request_id)
        if future is not None and not future.done():
            future.set_result(answer)

    def fail_all(self, reason: str) -> None:
        for future in self._futures.values():
            if not future.done():
                future.set_exception(EngineUnavailable(reason))
