"""The seam between text and tokens: token ids in, token events out, wherever the runtime lives."""

import enum
from collections.abc import AsyncIterator
from typing import Protocol

from runtime.cache_messages import CacheAnswer, CacheQuery
from runtime.messages import EngineInfo, EngineStats, Submit, TokenEvent


class EngineState(enum.Enum):
    """STARTING until the first Pong; READY; DEAD between a death and the next Pong; REFUSED while
    a runtime elsewhere answers that does not fit, or does not want us: it may be replaced;
    FAILED when the restart limit is used up; STOPPED after stop()."""

    STARTING = "starting"
    READY = "ready"
    DEAD = "dead"
    REFUSED = "refused"
    FAILED = "failed"
    STOPPED = "stopped"


class EngineUnavailable(Exception):
    """Raised by submit() while no runtime can take requests; the message says why."""


class TokenEngine(Protocol):
    """One model served by token ids. All methods belong to the event loop's thread; `state`,
    `info` and `stats` may be read by any, as a scrape does."""

    @property
    def state(self) -> EngineState: ...

    @property
    def info(self) -> EngineInfo | None:
        """None until the first Pong; then what the latest incarnation said."""

    @property
    def stats(self) -> EngineStats:
        """The latest gauges and counters that a message carried."""

    def submit(self, request: Submit) -> AsyncIterator[TokenEvent]:
        """Sends the request and yields events of all its choices until each had its last.

        An iterator that is closed early aborts the request. When the runtime dies, each
        unfinished choice yields a last event with error ENGINE_DIED.

        Raises: EngineUnavailable at the call, before anything is sent.
        """

    async def ask(self, query: CacheQuery) -> CacheAnswer:
        """Asks the runtime about its prefix cache; `request_id` is unique per gateway.

        Raises: EngineUnavailable, also where the runtime dies before it answers.
        """

    def abort(self, request_id: str, choice: int | None = None) -> None:
        """Ends a request or one choice; idempotent, unknown ids are fine."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...
