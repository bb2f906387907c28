"""One request to a server and its answer as bytes with their times; asyncio streams cost more.

What comes in is only noted; `telemetry.answer_stream` reads it. Whatever a server sends is bounded:
heads, bodies, pieces, silence and time. Called by `gateway.load_client`; one event loop uses it.
"""

import asyncio
import socket
import ssl
import time
from dataclasses import dataclass, field
from typing import cast

import httptools

from gateway.load_target import Target, TargetError
from telemetry.answer_stream import RecordedStream
from telemetry.bench_run import FailureKind

JSON_TYPE = b"Content-Type: application/json\r\n"


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """What an answer may have and take. It is kept in memory until it is read; `silence_s` is the
    longest that a server may say nothing, such as in its queue."""

    head_bytes: int = 64 * 1024
    body_bytes: int = 64 * 1024 * 1024
    pieces: int = 1_000_000
    connect_s: float = 30.0
    silence_s: float = 600.0
    total_s: float = 3600.0


@dataclass(eq=False, slots=True)
class Link:
    """The way to one server on one event loop. Its address is looked up once, so that no request
    waits for a name. Connections that are kept open wait in `idle`; `num_repeated` counts the
    requests that such a one had no answer for, and that were sent again on another."""

    target: Target
    limits: AnswerLimits = field(default_factory=AnswerLimits)
    keeps_open: bool = False
    num_repeated: int = 0
    idle: list["Connection"] = field(default_factory=list)
    _address: str = ""
    _tls: ssl.SSLContext | None = None

    async def open(self) -> None:
        """Finds the first address that answers. Raises: TargetError."""
        loop = asyncio.get_running_loop()
        self._tls = self.target.tls()
        try:
            async with asyncio.timeout(self.limits.connect_s):
                found = await loop.getaddrinfo(
                    self.target.host, self.target.port, type=socket.SOCK_STREAM
                )
        except (OSError, UnicodeError, TimeoutError) as error:
            raise TargetError(f"its address is not found: {describe(error)}") from None
        failure = "it has no address"
        for address in dict.fromkeys(str(one[4][0]) for one in found):
            self._address = address
            try:
                (await self.connect()).close()
            except OSError as error:
                failure = describe(error)
            else:
                return
        raise TargetError(f"the server does not answer: {failure}")

    async def connect(self) -> "Connection":
        """Raises: OSError, of which TimeoutError is one."""
        loop = asyncio.get_running_loop()
        host = self.target.host if self._tls is not None else None
        async with asyncio.timeout(self.limits.connect_s):
            _, connection = await loop.create_connection(
                lambda: Connection(self.limits),
                self._address,
                self.target.port,
                ssl=self._tls,
                server_hostname=host,
            )
        return connection

    async def send(self, method: str, path: str, content: bytes = b"") -> RecordedStream:
        """One request to its end. What fails is in the stream's `failure`."""
        head = self.target.request_head(method, path, keeps_open=self.keeps_open)
        length = b"Content-Length: %d\r\n\r\n" % len(content)
        request = head + (JSON_TYPE if content else b"") + length + content
        while self.idle:
            connection = self.idle.pop()
            if connection.is_lost:
                continue
            stream = await self._ask(connection, request)
            if stream.failure is None or connection.num_bytes:
                return stream
            self.num_repeated += 1  # it was closed before the request arrived, as it may be
        stream = RecordedStream(time.perf_counter_ns())
        try:
            connection = await self.connect()
        except OSError as error:
            stream.failure = describe(error)
            stream.failure_kind = (
                FailureKind.TIMEOUT if isinstance(error, TimeoutError) else FailureKind.CONNECTION
            )
            stream.end_ns = time.perf_counter_ns()
            return stream
        return await self._ask(connection, request, stream)

    async def _ask(
        self, connection: "Connection", request: bytes, stream: RecordedStream | None = None
    ) -> RecordedStream:
        stream = stream or RecordedStream(time.perf_counter_ns())
        try:
            await connection.ask(request, stream)
        finally:
            if self.keeps_open and stream.failure is None and connection.may_ask_again:
                self.idle.append(connection)
            else:
                connection.close()
        return stream

    def close(self) -> None:
        while self.idle:
            self.idle.pop().close()


class Connection(asyncio.Protocol):
    """One connection, with one request under way at most."""

    def __init__(self, limits: AnswerLimits) -> None:
        self._limits = limits
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._stream = RecordedStream(0)
        self._body: list[bytes] = []
        self._headers: dict[bytes, bytes] = {}
        self._has_head = False
        self._over: asyncio.Future[None] | None = None
        self._watch: asyncio.TimerHandle | None = None
        self.num_bytes = 0
        self.is_lost = False
        self.may_ask_again = False

    async def ask(self, request: bytes, stream: RecordedStream) -> None:
        """Fills `stream` until the answer ends or fails; cancelling it leaves it as it is."""
        loop = asyncio.get_running_loop()
        self._stream, self._over = stream, loop.create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._has_head, self.num_bytes, self.may_ask_again = False, 0, False
        self._headers.clear()
        self._body.clear()
        if self._transport is None or self.is_lost:
            self._fail(FailureKind.CONNECTION, "the connection was lost")
        else:
            wait_s = min(self._limits.silence_s, self._limits.total_s)
            self._watch = loop.call_later(wait_s, self._look)
            self._transport.write(request)
        try:
            await self._over
        finally:
            if self._watch is not None:
                self._watch.cancel()
            self._over = None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        now_ns = time.perf_counter_ns()
        parser = self._parser
        if self._over is None or parser is None or self._over.done():
            self.may_ask_again = False  # nobody asked for it
            return
        self.num_bytes += len(data)
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(FailureKind.BROKEN_STREAM, "the server wants another protocol")
        except httptools.HttpParserError as error:
            self._fail(FailureKind.BROKEN_STREAM, f"no HTTP: {str(error)[:200]}")
        self._note(now_ns)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        if self._over is None or self._over.done():
            return
        if exc is None and self._has_head and not self._is_framed():
            self._end()  # such an answer ends with its connection
            self._stream.end_ns = time.perf_counter_ns()
        elif self._has_head:
            self._fail(FailureKind.BROKEN_STREAM, "the connection was lost in the answer")
        else:
            reason = "" if exc is None else f": {describe(exc)}"
            self._fail(FailureKind.CONNECTION, f"the connection was lost{reason}")

    # What the parser calls.

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        if status < 200:  # another head follows
            return
        self._has_head = True
        self._stream.status = status
        coding = self._headers.get(b"content-encoding", b"identity").lower()
        if coding != b"identity":
            self._fail(FailureKind.BROKEN_STREAM, "the answer is encoded, which nobody asked for")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        assert self._parser is not None
        if not self._has_head:
            self._headers.clear()
            return
        self.may_ask_again = self._parser.should_keep_alive()
        self._end()

    def _note(self, now_ns: int) -> None:
        """What has just been received, as one piece however it was framed."""
        stream, limits = self._stream, self._limits
        if self._body:
            stream.pieces.append((now_ns, b"".join(self._body)))
            self._body.clear()
        stream.end_ns = now_ns
        if not self._has_head and self.num_bytes > limits.head_bytes:
            self._fail(FailureKind.TOO_LARGE, "the head of the answer does not end")
        elif self.num_bytes > limits.body_bytes or len(stream.pieces) > limits.pieces:
            self._fail(FailureKind.TOO_LARGE, "the answer does not end: it is too large")

    def _look(self) -> None:
        """Whether the server has been silent, or the answer under way, for too long."""
        loop, now_ns = asyncio.get_running_loop(), time.perf_counter_ns()
        limits = self._limits
        last_ns = self._stream.pieces[-1][0] if self._stream.pieces else self._stream.start_ns
        last_ns = max(last_ns, self._stream.end_ns)
        silent_s = (now_ns - last_ns) / 1e9
        left_s = limits.total_s - (now_ns - self._stream.start_ns) / 1e9
        if silent_s >= limits.silence_s:
            said = f"the server said nothing for {limits.silence_s:g} s"
            self._fail(FailureKind.TIMEOUT, said)
        elif left_s <= 0:
            said = f"the answer does not end: it takes more than {limits.total_s:g} s"
            self._fail(FailureKind.TIMEOUT, said)
        else:
            wait_s = min(limits.silence_s - silent_s, left_s) + 0.001
            self._watch = loop.call_later(wait_s, self._look)

    def _is_framed(self) -> bool:
        """Whether the answer itself says where it ends."""
        chunked = b"chunked" in self._headers.get(b"transfer-encoding", b"").lower()
        return chunked or b"content-length" in self._headers

    def _fail(self, kind: FailureKind, text: str) -> None:
        if self._over is None or self._over.done():
            return
        self._stream.failure, self._stream.failure_kind = text, kind
        self._stream.end_ns = time.perf_counter_ns()
        self._end()

    def _end(self) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(None)


def describe(error: BaseException) -> str:
    """One line, also of an error that says nothing."""
    said = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
