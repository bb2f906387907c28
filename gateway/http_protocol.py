"""uvicorn's HTTP protocol with bounds on what reaches no middleware: heads, framing, and garbage.

The parser below it collects a request's head, the trailers and chunk extensions of its body, for
as long as a client sends them, before or beside everything that checks a key or a size.
"""

import asyncio
import logging
import secrets
from typing import Any

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.direct_write import offer_direct_write
from gateway.errors import InvalidRequest

# Bytes of one request that are not its body: URL, headers, trailers, the frames of chunks. The
# read in which a request begins is not counted, as it may hold the end of another; it is at most
# the event loop's buffer of 256 KiB.
MAX_OVERHEAD_BYTES = 64 * 1024
# A body in chunks of one byte has five bytes of frames for each of its own.
OVERHEAD_PER_BODY_BYTE = 6
# From the connection, or the first byte of a later request, to the end of its head.
HEAD_TIMEOUT_S = 60.0
_logger = logging.getLogger(__name__)


class BoundedHttpProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._overhead = 0
        self._body_bytes = 0
        self._is_new = True
        self._asks_upgrade = False
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_complete()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        known_body = self._body_bytes
        self._is_new = False
        self._unset_keepalive_if_required()
        try:
            self._parse(memoryview(data))
        except httptools.HttpParserError as error:
            _logger.debug("a client sends what is no HTTP: %s", error)
            self.send_400_response("Invalid HTTP request received.")
        if not self._is_new:  # else the counts began anew somewhere in this read
            self._overhead += len(data) - (self._body_bytes - known_body)
        allowed = MAX_OVERHEAD_BYTES + OVERHEAD_PER_BODY_BYTE * self._body_bytes
        if self._overhead > allowed and not self.transport.is_closing():
            self.send_400_response("The request's head or the framing of its body is too large.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._overhead = self._body_bytes = 0
        self._is_new = True
        self._asks_upgrade = False
        self._await_head()

    def on_headers_complete(self) -> None:
        self._asks_upgrade = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if self._asks_upgrade:  # it comes again without that
            return
        self._head_is_complete()
        earlier = self.cycle
        super().on_headers_complete()
        if self.cycle is not earlier:  # its task has not begun yet
            offer_direct_write(self.cycle)

    def on_message_complete(self) -> None:
        if not self._asks_upgrade:
            super().on_message_complete()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def send_400_response(self, msg: str) -> None:
        """In OpenAI's shape and closing the connection; in the midst of an answer it only closes,
        as anything written would become part of that answer."""
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(_bad_request(msg))
        self.transport.close()

    def _parse(self, data: memoryview) -> None:
        """An upgrade is no more than an offer, which Java's client makes with every first request
        (to h2c). The parser takes it, and all that follows the head for another protocol."""
        while data:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as error:
                if not self._asks_upgrade:
                    return
                head = self._head_without_upgrade()
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's
                self.parser.feed_data(head)
                data = data[error.args[0] :]
            else:
                return

    def _head_without_upgrade(self) -> bytes:
        version = self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)]
        lines += [b"%s: %s" % field for field in self.headers if field[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self._on_slow_head)

    def _head_is_complete(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _on_slow_head(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()


def _bad_request(message: str) -> bytes:
    body = msgspec.json.encode(InvalidRequest(message).body())
    head = (
        "HTTP/1.1 400 Bad Request\r\n"
        "content-type: application/json\r\n"
        f"content-length: {len(body)}\r\n"
        f"x-request-id: req_{secrets.token_hex(16)}\r\n"
        "connection: close\r\n\r\n"
    )
    return head.encode() + body
