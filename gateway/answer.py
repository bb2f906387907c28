"""Runs one validated request and answers it, whole or as a stream.

The request holds its place in the limiter until its last byte. Its status is decided before the
first byte: a stream's headers wait for the engine's admission or for the first keep-alive.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import cast

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.direct_write import direct_write
from gateway.disconnect import ClientDisconnected
from gateway.errors import DeadlineExceeded, ServerError
from gateway.generation import (
    Admitted,
    ChoiceFinished,
    Completed,
    GenerationEvent,
    GenerationRequest,
    Generator,
    PreparedGeneration,
    TextDelta,
    Usage,
)
from gateway.limiter import Admission, Limiter
from gateway.middleware import (
    CONSTRAINT_ENGINE_HEADER,
    CONSTRAINT_HEADER,
    IGNORED_HEADER,
    JSONBody,
    to_logged_error,
)
from gateway.parameters import ignored_header
from gateway.rate_limits import Charge, RateLimits
from gateway.request_context import RequestContext, request_context
from gateway.schemas.answer import ChoiceResult, Presenter
from gateway.settings import KeepAliveMode
from gateway.sse import PING, EventStream

# The engine ends a request at its deadline and says what it did; this is for when it cannot.
DEADLINE_GRACE_S = 1.0
# A client that does not read cannot keep a stream open longer than this once all is said.
LAST_FRAME_S = 5.0


@dataclass(frozen=True, slots=True)
class Call:
    """One validated request: who computes it, and how its answer looks. `ignored` are the names
    of parameters without effect. `keep` is awaited when the presenter has made the complete answer
    (its body, or its closing frames) and before the client gets it. `new_choice` makes what
    collects a choice that is not streamed."""

    generator: Generator
    request: GenerationRequest
    presenter: Presenter
    num_choices: int
    is_stream: bool
    ignored: tuple[str, ...] = ()
    keep: Callable[[], Awaitable[None]] | None = None
    new_choice: Callable[[], ChoiceResult] = ChoiceResult


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """What a silent stream sends, and after how long."""

    mode: KeepAliveMode
    interval_s: float

    def frame(self, presenter: Presenter) -> bytes | None:
        if self.mode == "off":
            return None
        return PING if self.mode == "comment" else presenter.silence()


class Answer(Response):
    """The response of a generation route: all work happens while it is sent."""

    def __init__(
        self,
        call: Call,
        *,
        limiter: Limiter,
        rates: RateLimits,
        keep_alive: KeepAlive,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        super().__init__()
        self._call = call
        self._limiter = limiter
        self._rates = rates
        self._keep_alive = keep_alive
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        context = request_context(scope)
        _name_ignored(context, self._call.ignored)
        async with self._accepted(context) as (admission, charge):
            async with aclosing(self._events(context, admission, charge)) as events:
                if self._call.is_stream:
                    stream = EventStream(
                        send,
                        opening=self._call.presenter.opening(),
                        write_now=direct_write(scope),
                    )
                    await self._stream(events, context, stream)
                else:
                    response = await self._whole(events)
                    await response(scope, receive, send)

    @asynccontextmanager
    async def _accepted(self, context: RequestContext) -> AsyncIterator[tuple[Admission, Charge]]:
        """Raises: RateLimited, Overloaded."""
        with self._limiter.admit(context.account, self._call.num_choices) as admission:
            async with self._rates.admit(context) as charge:
                yield admission, charge

    async def _events(
        self, context: RequestContext, admission: Admission, charge: Charge
    ) -> AsyncGenerator[GenerationEvent, None]:
        """The request's life as the generator tells it, observed on the way."""
        observation = context.observation
        assert observation is not None, "generation routes are observed"
        prepared = await self._call.generator.prepare(self._call.request)
        _name_ignored(context, (*self._call.ignored, *prepared.ignored))
        _name_constraint(context, prepared)
        observation.prepared(prepared)
        admission.add_prompt_tokens(prepared.num_prompt_tokens)
        await charge.hold(prepared)
        async with aclosing(_closable(self._call.generator.generate(prepared))) as events:
            async for event in events:
                observation.event(event)
                charge.event(event)
                # Nothing is said before an answer was checked: if none is found, that is a status.
                if not (prepared.is_checked and isinstance(event, Admitted)):
                    yield event

    async def _whole(self, events: AsyncIterator[GenerationEvent]) -> Response:
        choices = [self._call.new_choice() for _ in range(self._call.num_choices)]
        usage: Usage | None = None
        async with self._deadline():
            async for event in events:
                match event:
                    case TextDelta():
                        choices[event.choice].add(event)
                    case ChoiceFinished():
                        choices[event.choice].finish_reason = event.reason
                    case Completed():
                        usage = event.usage
        if usage is None:
            raise _incomplete()
        body = self._call.presenter.body(choices, usage)
        await self._keep()
        return JSONBody(body)

    async def _stream(
        self, events: AsyncIterator[GenerationEvent], context: RequestContext, stream: EventStream
    ) -> None:
        silence = self._keep_alive.frame(self._call.presenter)
        async with stream.kept_alive(self._keep_alive.interval_s, silence):
            try:
                async with self._deadline():
                    await self._write_events(events, stream)
            except ClientDisconnected:
                raise
            except Exception as error:
                if not stream.is_started:
                    raise
                await self._fail(stream, context, error)
        # Even the end of the stream waits for a client that has not read what came before it.
        async with _last_frame():
            await stream.finish()

    async def _write_events(
        self, events: AsyncIterator[GenerationEvent], stream: EventStream
    ) -> None:
        presenter = self._call.presenter
        is_complete = False
        async for event in events:
            match event:
                case Admitted():
                    await stream.start()
                case TextDelta():
                    frame = presenter.delta(event)
                    if frame and not stream.write_nowait(frame):
                        await stream.write(frame)
                case ChoiceFinished():
                    await stream.write(presenter.finish(event))
                case Completed():
                    is_complete = True
                    closing = presenter.closing(event.usage)
                    await self._keep()
                    await stream.write(closing)
        if not is_complete:
            raise _incomplete()

    async def _keep(self) -> None:
        if self._call.keep is not None:
            await self._call.keep()

    async def _fail(self, stream: EventStream, context: RequestContext, error: Exception) -> None:
        """The status is out: the error becomes the stream's last event, and no [DONE] follows."""
        told = to_logged_error(error, context)
        if context.observation is not None:
            context.observation.fail(told)
        async with _last_frame():
            await stream.write(self._call.presenter.failure(told))

    @asynccontextmanager
    async def _deadline(self) -> AsyncIterator[None]:
        """Raises: DeadlineExceeded when the block outlives the request's deadline."""
        deadline_ns = self._call.request.deadline_ns
        left_s = max(0, deadline_ns - self._clock()) / 1e9 + DEADLINE_GRACE_S
        try:
            async with asyncio.timeout(left_s if deadline_ns else None) as scope:
                yield
        except TimeoutError:
            if not scope.expired():
                raise
            raise DeadlineExceeded("The request took longer than the server allows.") from None


@asynccontextmanager
async def _last_frame() -> AsyncIterator[None]:
    """Raises: ClientDisconnected when the client does not take what the block sends."""
    try:
        async with asyncio.timeout(LAST_FRAME_S):
            yield
    except TimeoutError:
        raise ClientDisconnected from None


def _name_ignored(context: RequestContext, names: tuple[str, ...]) -> None:
    if names:
        context.response_headers[IGNORED_HEADER] = ignored_header(names)


def _name_constraint(context: RequestContext, prepared: PreparedGeneration) -> None:
    if prepared.constraint is not None:
        context.response_headers[CONSTRAINT_HEADER] = prepared.enforcement
        context.response_headers[CONSTRAINT_ENGINE_HEADER] = prepared.constraint.engine


def _incomplete() -> ServerError:
    return ServerError("The engine ended the answer before it was complete.")


def _closable(events: AsyncIterator[GenerationEvent]) -> AsyncGenerator[GenerationEvent, None]:
    """Generators promise that closing the iterator early aborts the request."""
    return cast("AsyncGenerator[GenerationEvent, None]", events)
