"""Redis' protocol: what is packed is read back, however it is cut, and what is none is refused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefix_cache.tiers.resp import (
    MAX_VALUE_BYTES,
    ProtocolError,
    Refusal,
    Reply,
    ReplyReader,
    pack,
)


class Cut(Exception):
    """The bytes have an end."""


def reader_of(data: bytes, *, piece: int = 1 << 20, expected_bytes: int = 0) -> ReplyReader:
    rest = memoryview(data)

    def receive(buffer: memoryview) -> int:
        nonlocal rest
        count = min(len(buffer), len(rest), piece)
        if not count:
            raise Cut
        buffer[:count], rest = rest[:count], rest[count:]
        return count

    return ReplyReader(receive, expected_bytes=expected_bytes)


def spelled(reply: Reply) -> bytes:
    if reply is None:
        return b"$-1\r\n"
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, Refusal):
        return b"-" + reply.line.encode() + b"\r\n"
    if isinstance(reply, list):
        return b"*%d\r\n" % len(reply) + b"".join(map(spelled, reply))
    return b"$%d\r\n" % len(reply) + bytes(reply) + b"\r\n"


def plain(reply: Reply) -> Reply:
    if isinstance(reply, list):
        return [plain(item) for item in reply]
    return bytes(reply) if isinstance(reply, memoryview) else reply


LINES = st.text(st.characters(codec="ascii", exclude_characters="\r\n"), max_size=80)
VALUES = st.binary(max_size=40) | st.integers(0, 60_000).map(lambda size: b"\r\n" * (size // 2))
SINGLE = st.none() | st.integers(-(2**62), 2**62) | LINES.map(Refusal) | VALUES
REPLIES = SINGLE | st.lists(SINGLE, max_size=5) | st.lists(st.lists(SINGLE, max_size=3), max_size=3)


@settings(derandomize=True, max_examples=60, deadline=None)
@given(st.lists(REPLIES, max_size=6), st.integers(1, 40_000), st.integers(0, 100_000))
def test_replies_are_read_however_they_are_cut(
    replies: list[Reply], piece: int, expected_bytes: int
) -> None:
    data = b"".join(map(spelled, replies))
    reader = reader_of(data, piece=max(piece, len(data) // 500), expected_bytes=expected_bytes)
    assert [plain(reader.read()) for _ in replies] == replies
    assert reader.num_unread == 0


def test_large_values_are_views_that_outlive_what_is_read_after_them() -> None:
    values = [bytes([letter]) * 50_000 for letter in b"abcdef"]
    reader = reader_of(b"".join(map(spelled, values)))
    read = [reader.read() for _ in values]
    assert all(isinstance(value, memoryview) for value in read)
    assert [plain(value) for value in read] == values


def test_values_of_the_expected_size_share_one_buffer() -> None:
    buffers = []

    def take(num_bytes: int) -> memoryview:
        buffers.append(num_bytes)
        return memoryview(bytearray(num_bytes))

    data = spelled([b"x" * 50_000] * 4)
    rest = memoryview(data)

    def receive(buffer: memoryview) -> int:
        nonlocal rest
        count = min(len(buffer), len(rest), 7000)
        buffer[:count], rest = rest[:count], rest[count:]
        return count

    ReplyReader(receive, take_buffer=take, expected_bytes=len(data)).read()
    assert buffers == [len(data)]


def test_a_line_that_is_cut_between_its_two_last_bytes_has_an_end() -> None:
    assert reader_of(b"+" + b"a" * 61 + b"\r\n", piece=63).read() == b"a" * 61


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\xff nothing of the kind\r\n",
        b"\r\n",
        b":12x\r\n",
        b":\r\n",
        b": 7\r\n",
        b":1_0\r\n",
        b"$-2\r\n",
        b"$3\r\nabcdef\r\n",
        b"$%d\r\n" % (MAX_VALUE_BYTES + 1),
        b"$99999999999999999999999\r\n",
        b"*-2\r\n",
        b"*9999999999\r\n",
        b"*1\r\n" * 9 + b":1\r\n",
        b"+" + b"a" * 5000,
        b"%1\r\n+a\r\n:1\r\n",
    ],
)
def test_what_is_no_protocol_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        reader_of(data, piece=97).read()


@pytest.mark.parametrize("data", [b"", b":12", b"$5\r\nab", b"*2\r\n:1\r\n"])
def test_what_ends_too_soon_is_waited_for(data: bytes) -> None:
    with pytest.raises(Cut):
        reader_of(data).read()


def test_commands_are_packed_and_large_pieces_are_not_copied() -> None:
    large = memoryview(b"p" * 9000)
    packed = pack([(b"SET", b"k", (b"head", large), b"EX", 60), (b"GET", memoryview(b"k"))])
    assert b"".join(packed) == (
        b"*5\r\n$3\r\nSET\r\n$1\r\nk\r\n$9004\r\nhead" + bytes(large) + b"\r\n$2\r\nEX\r\n$2\r\n60"
        b"\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"
    )
    assert any(piece is large for piece in packed)


def test_the_code_of_a_refusal_is_its_first_word() -> None:
    reply = reader_of(b"-OOM command not allowed\r\n").read()
    assert isinstance(reply, Refusal)
    assert reply.code == "OOM"
