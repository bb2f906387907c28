"""Server-sent events: frames of bytes, headers with the first of them, keep-alives in silence."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from starlette.types import Send

from gateway.direct_write import DirectWrite
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
    """One response. `opening` goes out with the headers, so that nothing can come before it.
    `write_now` is the connection's own (direct_write.py), the short way for what it takes."""

    def __init__(self, send: Send, *, opening: bytes, write_now: DirectWrite | None = None) -> None:
        self._send = send
        self._write_now = write_now
        self._time = asyncio.get_running_loop().time
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
        if self.write_nowait(frame):
            return
        async with self._lock:
            await self._start()
            await self._body(frame)

    def write_nowait(self, frame: bytes) -> bool:
        """Sends a frame if that needs no waiting; False: nothing was done."""
        if not self.is_started or self._write_now is None or self._lock.locked():
            return False
        if not self._write_now(frame):
            return False
        self._written_at = self._time()
        return True

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
        self._written_at = self._time()
        while True:
            silence_s = self._time() - self._written_at
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
        self._written_at = self._time()
        await self._send({"type": "http.response.body", "body": frame, "more_body": True})
