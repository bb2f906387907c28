"""The connection to Redis that counters and kept answers share: one pool, calls that are bounded in
time, and a breaker that asks nothing of a server that just failed.

    result = await link.call(lambda redis: redis.get(link.key("answers", answer_id)))

The caller catches RedisUnavailable and goes on without Redis. Used by the event loop only.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from prefix_cache.tiers.redis_url import RedisURLError, check_redis_url

if TYPE_CHECKING:
    from redis.asyncio import Redis
    from redis.commands.core import AsyncScript

PREFIX = "radixgate"
TIMEOUT_S = 0.1
# After a failure nothing is asked for this long, then one call tries; twice as long if it fails, or
# if another one does soon after: a Redis that is full answers what reads and refuses what writes.
FIRST_PAUSE_S = 1.0
MAX_PAUSE_S = 30.0
_MAX_CONNECTIONS = 32
_T = TypeVar("_T")
_logger = logging.getLogger(__name__)


class RedisUnavailable(Exception):
    """Redis did not answer in time, refused, or failed a moment ago and is not asked."""


class RedisLink:
    """Connects with the first call. It is a service: start() says in the log whether Redis answers,
    stop() closes."""

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_failure` is told of each call that was made and failed.

        Raises: RedisURLError.
        """
        self._client = _client(url, timeout_s)
        self._timeout_s = timeout_s
        self._clock = clock
        self._on_failure = on_failure
        self._pause_s = 0.0
        self._last_pause_s = 0.0
        self._up_since = -math.inf
        self._retry_at = 0.0
        self._is_trying = False

    @property
    def is_up(self) -> bool:
        """Whether the last call that counts was answered; True before the first."""
        return not self._pause_s

    @staticmethod
    def key(*parts: str) -> str:
        """The name of a key under our prefix."""
        return ":".join((PREFIX, *parts))

    def script(self, source: str) -> "AsyncScript":
        """A Lua script that Redis runs atomically: `await script(keys=[...], args=[...])` inside
        call()."""
        return self._client.register_script(source)

    async def call(
        self, command: "Callable[[Redis], Awaitable[_T]]", *, timeout_s: float | None = None
    ) -> _T:
        """Runs the command, for `timeout_s` at the longest (the link's own if None; a large value
        may need more).

        Raises: RedisUnavailable.
        """
        from redis.exceptions import RedisError

        is_trial = self._enter()
        try:
            async with asyncio.timeout(self._timeout_s if timeout_s is None else timeout_s):
                result = await command(self._client)
        except (RedisError, OSError, TimeoutError) as error:
            self._on_failure()
            self._fail(error, is_trial=is_trial)
            raise RedisUnavailable(_reason(error)) from error
        finally:
            self._is_trying = self._is_trying and not is_trial
        if is_trial:
            _logger.info("Redis answers again")
            self._last_pause_s, self._pause_s = self._pause_s, 0.0
            self._up_since = self._clock()
        return result

    async def start(self) -> None:
        """Redis may be down: the log says so, and the server starts all the same."""
        try:
            await self.call(_ping)
        except RedisUnavailable:
            pass

    async def stop(self) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections; calls that are under way fail."""
        await self._client.aclose()

    def _enter(self) -> bool:
        """Whether this call is the one that tries whether Redis is back."""
        if self.is_up:
            return False
        if self._is_trying or self._clock() < self._retry_at:
            raise RedisUnavailable("it failed a moment ago")
        self._is_trying = True
        return True

    def _fail(self, error: Exception, *, is_trial: bool) -> None:
        if self.is_up:
            _logger.warning("Redis does not answer (%s); going on without it", _reason(error))
        elif not is_trial:  # it was sent before the breaker knew
            return
        is_again = self.is_up and self._clock() - self._up_since < MAX_PAUSE_S
        last_pause_s = self._last_pause_s if is_again else self._pause_s
        self._pause_s = min(MAX_PAUSE_S, max(FIRST_PAUSE_S, 2 * last_pause_s))
        self._retry_at = self._clock() + self._pause_s


async def _ping(redis: "Redis") -> Any:
    return await redis.ping()


def _client(url: str, timeout_s: float) -> "Redis":
    # Imported here: without the setting its import would be paid for nothing.
    from redis.asyncio import BlockingConnectionPool, Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.maint_notifications import MaintNotificationsConfig

    check_redis_url(url)
    try:
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=_MAX_CONNECTIONS,
            timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            retry=Retry(NoBackoff(), 0),
            driver_info=None,
            maint_notifications_config=MaintNotificationsConfig(enabled=False),
        )
        # An option in the URL that does not exist is found now.
        pool.make_connection()  # type: ignore[no-untyped-call]
    except (TypeError, ValueError) as error:
        raise RedisURLError(f"an option in the URL cannot be read: {error}") from None
    return Redis.from_pool(pool)


def _reason(error: Exception) -> str:
    text = str(error).splitlines()[0] if str(error) else ""
    return f"{type(error).__name__}: {text[:200]}" if text else "no answer in time"
