"""What a client sends around its request's body: bounded, answered in our shape, and no harm."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway import http_protocol
from tests.gateway_harness import chat, listening, make_gateway
from tests.raw_client import CHAT, raw_request

PIECE = b"a" * 65536
# Far more than is allowed, in case nothing is refused.
MANY_PIECES = 200
CHUNKED = (
    f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    "transfer-encoding: chunked\r\n\r\n"
).encode()
GET_VERSION = b"GET /version HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
async def base_url() -> AsyncIterator[str]:
    async with listening(make_gateway()) as url:
        yield url


@asynccontextmanager
async def connected(base_url: str) -> AsyncIterator[Streams]:
    host, port = base_url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.close()


async def flood(base_url: str, start: bytes, piece: bytes) -> None:
    """Sends `start` and then `piece` for ever; the server has to end it."""
    async with connected(base_url) as (_, writer):
        writer.write(start)
        for _ in range(MANY_PIECES):
            writer.write(piece)
            try:
                await writer.drain()
            except ConnectionError:
                return
            await asyncio.sleep(0)  # the server shares this loop
    pytest.fail("the server took all of it")


async def answer(base_url: str, raw: bytes) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the answer after which the server closes."""
    async with connected(base_url) as (reader, writer):
        writer.write(raw)
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    return int(status.split()[1]), dict(line.split(": ", 1) for line in lines), body


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (b"GET /health HTTP/1.1\r\nhost: x\r\nx-long: ", PIECE),
        (b"GET /health HTTP/1.1\r\nhost: x\r\n", b"x-one-of-many: a\r\n" * 4096),
        (CHUNKED + b"2\r\n{}\r\n0\r\nx-trailer: ", PIECE),
        (CHUNKED + b"2;extension=", PIECE),
    ],
    ids=["one header", "many headers", "a trailer", "a chunk extension"],
)
async def test_endless_heads_and_frames_are_cut_off(
    base_url: str, start: bytes, piece: bytes
) -> None:
    await flood(base_url, start, piece)
    status, _, _ = await answer(base_url, GET_VERSION)
    assert status == 200


async def test_what_is_no_http_is_refused_in_our_shape(base_url: str) -> None:
    status, headers, body = await answer(base_url, b"\x16\x03\x01 hello\r\n\r\n")
    assert status == 400
    assert headers["x-request-id"].startswith("req_")
    assert headers["content-type"] == "application/json"
    assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}


async def test_a_head_that_does_not_end_is_not_waited_for_but_a_body_is(
    base_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_TIMEOUT_S", 0.2)
    request = raw_request(chat(), headers={"connection": "close"})
    async with connected(base_url) as (reader, writer), connected(base_url) as (later, slow_writer):
        writer.write(request[:-1])
        slow_writer.write(b"GET /health HTTP/1.1\r\nhost:")
        assert await later.read() == b""
        writer.write(request[-1:])
        assert (await reader.read()).startswith(b"HTTP/1.1 200")


async def test_a_body_in_chunks_of_one_byte_is_read(base_url: str) -> None:
    body = json.dumps(chat("x" * 40_000)).encode()
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    head = CHUNKED.replace(b"host: x", b"host: x\r\nconnection: close")
    status, _, _ = await answer(base_url, head + chunks + b"0\r\n\r\n")
    assert status in (200, 400)  # the text may be too long for the model, but it was read
    assert len(chunks) > http_protocol.MAX_OVERHEAD_BYTES


async def test_many_requests_in_one_write_are_all_answered(base_url: str) -> None:
    large = raw_request({**chat(), "user": "u" * 300_000})
    async with connected(base_url) as (reader, writer):
        writer.write(large * 3 + GET_VERSION)
        answers = await reader.read()
    assert answers.count(b"HTTP/1.1 200") == 4


async def test_an_upgrade_is_answered_as_if_it_was_not_asked_for(base_url: str) -> None:
    upgrade = b"upgrade: websocket\r\nconnection: upgrade, close\r\n"
    upgrade += b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n"
    raw = GET_VERSION.replace(b"connection: close\r\n", upgrade)
    async with connected(base_url) as (reader, writer):
        writer.write(raw)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")


OFFERS_H2C = {
    "connection": "Upgrade, HTTP2-Settings",
    "upgrade": "h2c",
    "http2-settings": "AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
}


@pytest.mark.parametrize("piece_len", [1, 100, 10**6])
async def test_a_body_behind_an_offer_to_upgrade_is_read(
    base_url: str, piece_len: int, caplog: pytest.LogCaptureFixture
) -> None:
    offering = raw_request(chat(), headers=OFFERS_H2C)
    chunked = CHUNKED.replace(b"host: x", b"host: x\r\nupgrade: h2c\r\nconnection: upgrade")
    body = json.dumps(chat()).encode()
    raw = offering * 2 + chunked + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) + offering
    raw += GET_VERSION
    async with connected(base_url) as (reader, writer):
        for start in range(0, len(raw), piece_len):
            writer.write(raw[start : start + piece_len])
            await writer.drain()
            await asyncio.sleep(0)
        answers = await reader.read()
    assert answers.count(b"HTTP/1.1 200") == 5
    assert answers.count(b"chatcmpl-") == 4
    assert not caplog.records


async def test_garbage_and_tunnels_leave_no_lines_in_the_log(
    base_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    await answer(base_url, b"\x16\x03\x01 hello\r\n\r\n")
    async with connected(base_url) as (reader, writer):
        writer.write(b"CONNECT / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 404")
    assert not caplog.records
