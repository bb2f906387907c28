"""A stream's frames past the wrappers of `send`: on a real socket, to quick and to slow readers."""

import asyncio
import dataclasses
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import msgspec
import pytest
from starlette.types import Message, Receive, Scope, Send

from gateway.http_protocol import BoundedHttpProtocol
from tests.fake_token_engine import INFO
from tests.gateway_harness import CHAT, Gateway, chat, listening, make_gateway
from tests.raw_client import raw_request
from tests.sse_machine import check_chat_stream
from tests.waiting import until

# One frame a letter: 80 KB.
TEXT = "The quick brown fox jumps over the lazy dog. " * 8
SMALL_BYTES = 4096
Reader = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Tap:
    """An application whose bodies, on their way to the server, are remembered."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.bodies: list[bytes] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def tapped(message: Message) -> None:
            if message["type"] == "http.response.body":
                self.bodies.append(message.get("body", b""))
            await send(message)

        await self._app(scope, receive, tapped)


def long_answer(**settings: Any) -> Gateway:
    gateway = make_gateway(lambda *_: list(TEXT.encode()), keepalive="off", **settings)
    gateway.engine.info = msgspec.structs.replace(INFO, max_model_len=1000)
    return gateway


async def test_frames_do_not_pass_send_and_are_the_same() -> None:
    gateway = long_answer()
    tap = Tap(gateway.app)
    async with listening(dataclasses.replace(gateway, app=tap)) as url:  # type: ignore[arg-type]
        async with httpx2.AsyncClient(base_url=url) as client:
            response = await client.post(CHAT, json=chat(stream=True))
    assert check_chat_stream(response.content).texts == [TEXT]
    opening, *_, end = tap.bodies
    assert b'"role"' in opening
    assert end == b""
    assert len(tap.bodies) < 5


async def test_a_connection_serves_the_next_request_after_a_stream() -> None:
    gateway = long_answer()
    async with listening(gateway) as url, httpx2.AsyncClient(base_url=url) as client:
        for _ in range(2):
            response = await client.post(CHAT, json=chat(stream=True))
            assert check_chat_stream(response.content).texts == [TEXT]
        assert (await client.post(CHAT, json=chat())).json()["choices"][0]["message"]


@pytest.fixture
def _small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's side of each connection holds little that was not read."""
    connection_made = BoundedHttpProtocol.connection_made

    def with_small_buffers(self: BoundedHttpProtocol, transport: asyncio.Transport) -> None:
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BYTES)
        transport.set_write_buffer_limits(SMALL_BYTES)
        connection_made(self, transport)

    monkeypatch.setattr(BoundedHttpProtocol, "connection_made", with_small_buffers)


@asynccontextmanager
async def slow_reader(url: str) -> AsyncIterator[Reader]:
    """A connection that has asked for a stream and of which little is read ahead."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BYTES)
    host, port = url.removeprefix("http://").split(":")
    connection.connect((host, int(port)))
    reader, writer = await asyncio.open_connection(sock=connection, limit=SMALL_BYTES)
    body = chat(stream=True)
    writer.write(raw_request(body, headers={"connection": "close"}))
    try:
        yield reader, writer
    finally:
        writer.close()


@pytest.mark.usefixtures("_small_buffers")
async def test_slow_reader_holds_its_stream_up_and_misses_nothing() -> None:
    gateway = long_answer()
    async with listening(gateway) as url, slow_reader(url) as (reader, _):
        await until(lambda: bool(gateway.engine.submitted))
        for _ in range(2000):  # the answer would be over by now if nothing held it up
            await asyncio.sleep(0)
        assert gateway.engine.open_requests
        raw = await asyncio.wait_for(reader.read(), timeout=10)
    assert check_chat_stream(dechunked(raw)).texts == [TEXT]


@pytest.mark.usefixtures("_small_buffers")
async def test_reader_that_stopped_for_good_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.disconnect.MAX_STALL_S", 0.05)
    gateway = long_answer(max_running=1, max_queue=0)
    async with listening(gateway) as url, slow_reader(url):
        await until(lambda: bool(gateway.engine.aborted))
        await until(lambda: not gateway.engine.open_requests)


@pytest.mark.usefixtures("_small_buffers")
async def test_reader_that_leaves_while_its_stream_is_held_up_aborts_it() -> None:
    gateway = long_answer()
    async with listening(gateway) as url:
        async with slow_reader(url):
            await until(lambda: bool(gateway.engine.submitted))
        await until(lambda: bool(gateway.engine.aborted))
        await until(lambda: not gateway.engine.open_requests)


def dechunked(raw: bytes) -> bytes:
    """The body of an answer in chunks, read to its end."""
    left = raw.partition(b"\r\n\r\n")[2]
    pieces = []
    while left != b"0\r\n\r\n":
        size, _, left = left.partition(b"\r\n")
        length = int(size, 16)
        assert left[length : length + 2] == b"\r\n"
        pieces.append(left[:length])
        left = left[length + 2 :]
    return b"".join(pieces)
