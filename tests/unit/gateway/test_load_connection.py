"""What comes in over a connection of a load: framed in any way, bounded whatever a server does."""

import asyncio

import pytest

from gateway.load_connection import AnswerLimits, Link
from gateway.load_target import Target, TargetError
from telemetry.answer_stream import RecordedStream
from telemetry.bench_run import FailureKind
from tests.raw_server import (
    CHUNKED,
    Answer,
    answering,
    chunk,
    closing,
    endless,
    raw_server,
    read_request,
)

LENGTH = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"
ONE, TWO, LAST = chunk(b"data: 1\n\n"), chunk(b"data: 2\n\n"), b"0\r\n\r\n"


async def ask(answer: Answer, *, limits: AnswerLimits | None = None) -> RecordedStream:
    async with raw_server(answer) as url:
        link = Link(Target.of(url, None), limits or AnswerLimits())
        await link.open()
        async with asyncio.timeout(5):
            return await link.send("POST", "/chat/completions", b"{}")


def body(stream: RecordedStream) -> bytes:
    return b"".join(data for _, data in stream.pieces)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (answering(CHUNKED, ONE, TWO, LAST), b"data: 1\n\ndata: 2\n\n"),
        (answering(CHUNKED + ONE + TWO + LAST), b"data: 1\n\ndata: 2\n\n"),
        (answering(*(bytes([one]) for one in CHUNKED + ONE + LAST)), b"data: 1\n\n"),
        (answering(CHUNKED, ONE, b"0\r\nx-after: y\r\n\r\n"), b"data: 1\n\n"),
        (answering(LENGTH, b"he", b"llo"), b"hello"),
        (closing(b"HTTP/1.1 200 OK\r\n\r\n", b"to the ", b"end"), b"to the end"),
        (answering(b"HTTP/1.1 100 Continue\r\n\r\n", LENGTH, b"hello"), b"hello"),
    ],
    ids=["chunks", "at once", "bytes", "trailer", "length", "until it closes", "interim"],
)
async def test_an_answer_is_whole_however_it_is_framed(answer: Answer, expected: bytes) -> None:
    stream = await ask(answer)
    assert (stream.failure, stream.status, body(stream)) == (None, 200, expected)


async def test_each_piece_has_the_time_at_which_it_came() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        for piece in (CHUNKED, ONE, TWO + LAST):
            await asyncio.sleep(0.03)
            writer.write(piece)
            await writer.drain()

    stream = await ask(answer)
    (first_ns, _), (second_ns, _) = stream.pieces
    assert first_ns - stream.start_ns >= 55e6
    assert second_ns - first_ns >= 25e6
    assert stream.end_ns == second_ns


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (closing(), FailureKind.CONNECTION, "was lost"),
        (closing(b"HTTP/1.1 200 OK\r\ncont"), FailureKind.CONNECTION, "was lost"),
        (closing(CHUNKED, ONE), FailureKind.BROKEN_STREAM, "was lost in the answer"),
        (closing(LENGTH, b"hel"), FailureKind.BROKEN_STREAM, "was lost in the answer"),
        (closing(b"220 mail.example\r\n"), FailureKind.BROKEN_STREAM, "no HTTP"),
        (closing(CHUNKED, b"zz\r\n"), FailureKind.BROKEN_STREAM, "no HTTP"),
        (
            closing(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n\x1f\x8b"),
            FailureKind.BROKEN_STREAM,
            "encoded",
        ),
        (
            closing(b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"),
            FailureKind.BROKEN_STREAM,
            "another protocol",
        ),
    ],
)
async def test_what_is_no_whole_answer_has_its_kind(
    answer: Answer, kind: FailureKind, text: str
) -> None:
    stream = await ask(answer)
    assert stream.failure_kind is kind
    assert text in str(stream.failure)
    assert stream.end_ns >= stream.start_ns


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (endless(b"HTTP/1.1 200 OK\r\n", b"x-y: z\r\n" * 9), FailureKind.TOO_LARGE, "the head"),
        (endless(b"HTTP/1.1 200 OK\r\nx: ", b"z" * 100), FailureKind.TOO_LARGE, "the head"),
        (endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), FailureKind.TOO_LARGE, "the head"),
        (endless(CHUNKED, chunk(b"z" * 1000)), FailureKind.TOO_LARGE, "too large"),
        (endless(CHUNKED, chunk(b"z"), pause_s=0.001), FailureKind.TOO_LARGE, "too large"),
        (endless(CHUNKED + ONE, b"", pause_s=1.0), FailureKind.TIMEOUT, "said nothing"),
        (endless(b"", b"", pause_s=1.0), FailureKind.TIMEOUT, "said nothing"),
        (endless(CHUNKED, chunk(b"z"), pause_s=0.05), FailureKind.TIMEOUT, "takes more than"),
    ],
    ids=["headers", "header", "interims", "body", "pieces", "silence", "never", "drip"],
)
async def test_a_server_that_does_not_end_is_given_up(
    answer: Answer, kind: FailureKind, text: str
) -> None:
    limits = AnswerLimits(head_bytes=5000, body_bytes=50_000, pieces=40, silence_s=0.2, total_s=0.5)
    stream = await ask(answer, limits=limits)
    assert stream.failure_kind is kind
    assert text in str(stream.failure)
    assert len(body(stream)) < 500_000


@pytest.mark.parametrize(("keeps_open", "num_connections"), [(False, 4), (True, 2)])
async def test_a_connection_is_used_again_where_that_is_wanted(
    keeps_open: bool, num_connections: int
) -> None:
    """The first is that which finds out whether anyone listens."""
    connections = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        await answering(LENGTH + b"hello")(reader, writer)

    async with raw_server(answer) as url:
        link = Link(Target.of(url, None), keeps_open=keeps_open)
        await link.open()
        for _ in range(3):
            assert body(await link.send("POST", "/x", b"{}")) == b"hello"
        link.close()
    assert len(connections) == num_connections


async def test_a_request_that_met_a_closed_connection_is_sent_again_and_counted() -> None:
    requests = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not reader.at_eof():
            try:
                requests.append(await read_request(reader))
            except asyncio.IncompleteReadError:
                return
            if len(requests) == 2:  # the connection is closed as the second request arrives
                return
            writer.write(LENGTH + b"hello")

    async with raw_server(answer) as url:
        link = Link(Target.of(url, None), keeps_open=True)
        await link.open()
        first = await link.send("POST", "/x", b"{}")
        second = await link.send("POST", "/x", b"{}")
        link.close()
    assert (first.failure, second.failure, body(second)) == (None, None, b"hello")
    assert (len(requests), link.num_repeated) == (3, 1)


async def test_where_nobody_listens_is_said_at_once() -> None:
    with pytest.raises(TargetError, match="does not answer"):
        await Link(Target.of("http://127.0.0.1:9/v1", None)).open()


@pytest.mark.parametrize(
    ("url", "path", "host"),
    [
        ("https://host:44/v1", "/v1", "host:44"),
        ("https://host:443/v1/", "/v1", "host"),
        ("http://host/deep/v1", "/deep/v1", "host"),
        ("http://[::1]:8000", "", "[::1]:8000"),
    ],
)
def test_a_url_becomes_the_head_of_requests(url: str, path: str, host: str) -> None:
    target = Target.of(url, "key", headers={"X-Team": "a b"})
    assert target.path == path
    lines = target.request_head("POST", "/models", keeps_open=False).decode().split("\r\n")
    assert lines[0] == f"POST {path}/models HTTP/1.1"
    assert {f"Host: {host}", "Authorization: Bearer key", "X-Team: a b", "Connection: close"} <= {
        *lines
    }
    assert "key" not in repr(target)


@pytest.mark.parametrize(
    "url",
    [
        "host:8000",
        "ftp://host/",
        "http:///v1",
        "http://a:b/v1",
        "http://me:secret@host/v1",
        "http://host/v1?key=secret",
        "http://host/v1\r\nx: y",
        "http://host/a b",
        "http://höst/v1",
    ],
)
def test_a_url_that_no_request_can_have_is_refused(url: str) -> None:
    with pytest.raises(TargetError) as error:
        Target.of(url, None)
    assert "secret@" not in str(error.value)


@pytest.mark.parametrize("value", ["a\nb", "a\r\nx: y", "ä", "\x00"])
def test_a_header_that_would_be_two_is_refused(value: str) -> None:
    with pytest.raises(TargetError):
        Target.of("http://host/v1", value)
    with pytest.raises(TargetError):
        Target.of("http://host/v1", None, headers={"x": value})
