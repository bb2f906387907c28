"""A client that goes away ends its request, wherever that request is."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

# How long a client may take nothing of what is sent to it. Without an end one that stopped reading
# would keep its place in the limiter for as long as requests may take, which may be for ever.
MAX_STALL_S = 60.0


class ClientDisconnected(Exception):
    """The client closed its connection, or stopped reading, before it had the whole answer."""


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Runs `work` while the block runs; it is cancelled, and waited for, when the block ends."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()


class DisconnectMiddleware:
    """Cancels the handler's task when the client goes, from the body's upload to the last byte.

    The handler sees CancelledError at its current await; this raises ClientDisconnected once it
    has cleaned up. A client that stopped reading is ClientDisconnected in the handler's send().
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        connection = _Connection(receive, send)
        try:
            # asyncio's timeout is its cancel scope: it expires when the client is gone.
            async with asyncio.timeout(None) as cancel_scope:
                async with beside(connection.watch(cancel_scope)):
                    await self._app(scope, connection.receive, connection.send)
        except TimeoutError:
            if not connection.is_gone:
                raise
            raise ClientDisconnected from None


class _Connection:
    """The handler reads the body through it; after the body it is the watcher that reads."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._is_body_read = asyncio.Event()
        self._is_answered = False
        self.is_gone = False

    async def receive(self) -> Message:
        if self._is_body_read.is_set():
            await asyncio.Event().wait()  # nothing more comes; the watcher ends this wait
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        if not message.get("more_body", False):
            self._is_body_read.set()
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self._is_answered = True  # from here on servers report a disconnect that is none
        try:
            async with asyncio.timeout(MAX_STALL_S) as scope:
                await self._send(message)
        except TimeoutError:
            if not scope.expired():
                raise
            raise ClientDisconnected from None

    async def watch(self, cancel_scope: asyncio.Timeout) -> None:
        await self._is_body_read.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if not self._is_answered:
            self.is_gone = True
            cancel_scope.reschedule(asyncio.get_running_loop().time())
