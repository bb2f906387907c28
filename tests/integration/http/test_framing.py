"""Bodies whose length is announced wrongly, twice, not at all, or that never come."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.gateway_harness import CHAT, Gateway, chat, listening, make_gateway

BODY = json.dumps(chat(max_tokens=3)).encode()
HEAD = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n".encode()
CLOSE = b"connection: close\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def connected(gateway: Gateway) -> AsyncIterator[Streams]:
    async with listening(gateway) as base_url:
        host, port = base_url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            yield reader, writer
        finally:
            writer.close()


async def answers(raw: bytes, gateway: Gateway | None = None) -> list[tuple[int, bytes]]:
    """Status and body of each answer on one connection, until the server closes it."""
    async with connected(gateway or make_gateway()) as (reader, writer):
        writer.write(raw)
        data = await asyncio.wait_for(reader.read(), 10)
    found = []
    for part in data.split(b"HTTP/1.1 ")[1:]:
        head, _, body = part.partition(b"\r\n\r\n")
        found.append((int(head.split()[0]), body))
    return found


def is_error(body: bytes, code: str) -> bool:
    error = json.loads(body)["error"]
    return set(error) == {"message", "type", "param", "code"} and error["code"] == code


@pytest.mark.parametrize(
    "lengths",
    [
        b"content-length: -1\r\n",
        b"content-length: ten\r\n",
        b"content-length: 0x10\r\n",
        b"content-length: 99999999999999999999999\r\n",
        b"content-length: %d\r\ncontent-length: 5\r\n" % len(BODY),
        b"content-length: %d\r\ntransfer-encoding: chunked\r\n" % len(BODY),
        b"transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n",
        b"transfer-encoding: gzip\r\n",
    ],
)
async def test_lengths_that_cannot_be_trusted_are_refused_and_the_connection_is_closed(
    lengths: bytes,
) -> None:
    gateway = make_gateway()
    found = await answers(
        HEAD + lengths + b"\r\n" + BODY + b"GET /health HTTP/1.1\r\n\r\n", gateway
    )
    assert [status for status, _ in found] == [400]
    assert is_error(found[0][1], "invalid_value")
    assert gateway.engine.submitted == []


async def test_what_comes_after_a_body_that_was_announced_too_short_is_no_part_of_it() -> None:
    gateway = make_gateway()
    head = HEAD + b"content-length: %d\r\n\r\n" % (len(BODY) - 5)
    found = await answers(head + BODY + b"\r\n\r\n", gateway)
    assert {status for status, _ in found} == {400}
    assert gateway.engine.submitted == []


async def test_a_body_that_was_not_announced_is_none() -> None:
    found = await answers(HEAD + CLOSE + b"\r\n" + BODY)
    assert found[0][0] == 400
    assert is_error(found[0][1], "invalid_json")


@pytest.mark.parametrize("size", [b"zz", b"-5", b"", b"FFFFFFFFFFFFFFFFF"])
async def test_chunks_without_a_size_end_the_connection(size: bytes) -> None:
    gateway = make_gateway()
    raw = HEAD + b"transfer-encoding: chunked\r\n\r\n" + size + b"\r\n" + BODY + b"\r\n0\r\n\r\n"
    found = await answers(raw, gateway)
    assert [status for status, _ in found] in ([400], [])
    assert gateway.engine.submitted == []


async def test_a_client_that_waits_for_leave_gets_it() -> None:
    head = HEAD + CLOSE + b"expect: 100-continue\r\ncontent-length: %d\r\n\r\n" % len(BODY)
    async with connected(make_gateway()) as (reader, writer):
        writer.write(head)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        writer.write(BODY)
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")


async def test_a_client_that_waits_for_leave_to_send_too_much_does_not_get_it() -> None:
    head = HEAD + CLOSE + b"expect: 100-continue\r\ncontent-length: 99999999\r\n\r\n"
    found = await answers(head)
    assert [status for status, _ in found] == [413]


async def test_an_upload_that_stops_is_a_408_and_its_connection_is_closed() -> None:
    gateway = make_gateway(request_timeout_s=0.1)
    found = await answers(HEAD + b"content-length: 1000\r\n\r\n" + BODY, gateway)
    assert [status for status, _ in found] == [408]
    assert is_error(found[0][1], "request_timeout")


async def test_an_old_client_is_answered_and_its_connection_closed() -> None:
    head = HEAD.replace(b"HTTP/1.1", b"HTTP/1.0") + b"content-length: %d\r\n\r\n" % len(BODY)
    assert [status for status, _ in await answers(head + BODY)] == [200]
