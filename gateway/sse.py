"""Server-sent events: frames of bytes, headers with the first of them, keep-alives in silence."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from starlette.types import Send

from gateway.disconnect import beside
from gateway.errors import GatewayError

DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"

_START_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


def data_frame(payload: object) -> bytes:
    """One JSON object as one event."""
    return b"data: " + msgspec.json.encode(payload) + b"\n\n"


def error_frame(error: GatewayError) -> bytes:
    """How a stream fails after its status was sent."""
    return data_frame(error.body())


class EventStream:
    """One response. `opening` goes out with the headers, so that nothing can come before it."""

    def __init__(self, send: Send, *, opening: bytes) -> None:
        self._send = send
        self._opening = opening
        self._lock = asyncio.Lock()  # the handler and the keep-alive both write
        self._written_at = 0.0
        self.is_started = False

    async def start(self) -> None:
        """Sends status and headers, unless they are out."""
        async with self._lock:
            await self._start()

    async def write(self, frame: bytes) -> None:
        """Sends a frame, after the headers."""
        async with self._lock:
            await self._start()
            await self._body(frame)

    async def finish(self) -> None:
        """Ends the response cleanly."""
        async with self._lock:
            await self._start()
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    @asynccontextmanager
    async def kept_alive(self, interval_s: float, frame: bytes | None) -> AsyncIterator[None]:
        """Writes `frame` after each `interval_s` of silence while the block runs; None = never."""
        if frame is None:
            yield
            return
        async with beside(self._keep_alive(interval_s, frame)):
            yield

    async def _keep_alive(self, interval_s: float, frame: bytes) -> None:
        loop = asyncio.get_running_loop()
        self._written_at = loop.time()
        while True:
            silence_s = loop.time() - self._written_at
            if silence_s < interval_s:
                await asyncio.sleep(interval_s - silence_s)
            else:
                await self.write(frame)

    async def _start(self) -> None:
        if self.is_started:
            return
        await self._send(
            {"type": "http.response.start", "status": 200, "headers": list(_START_HEADERS)}
        )
        self.is_started = True
        if self._opening:
            await self._body(self._opening)

    async def _body(self, frame: bytes) -> None:
        self._written_at = asyncio.get_running_loop().time()
        await self._send({"type": "http.response.body", "body": frame, "more_body": True})
