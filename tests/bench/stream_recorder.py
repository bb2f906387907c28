"""Many streams read at once by one cheap loop, and what came when, found out afterwards.

No framework and no parsing while they run: the recorder must not be what limits the server.
"""

import bisect
import re
import select
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import msgspec

_READ_BYTES = 65536
_POLL_S = 0.02
# What only a chunk with text of an answer has, and the text.
_TEXT = re.compile(rb'"delta":\{"content":("(?:[^"\\]|\\.)*")')
_HEAD_END = b"\r\n\r\n"
_DONE = b"data: [DONE]\n\n"
_LAST_CHUNK = b"0\r\n\r\n"


class BadStream(Exception):
    """An answer that is not a whole stream; the message is one line."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """When each token of one answer was there, in monotonic ns; how many chunks brought them."""

    tokens_ns: list[int]
    num_chunks: int


@dataclass(eq=False, slots=True)
class Recording:
    """One connection: the arrival in monotonic ns of each piece that was read, and the piece."""

    arrivals_ns: list[int] = field(default_factory=list)
    pieces: list[bytes] = field(default_factory=list)

    def read(self, texts: Sequence[str]) -> Arrivals:
        """`texts` are those of the tokens, which then begin anew.

        Raises: BadStream for anything but a 200 with a stream of them that came to its end.
        """
        raw = b"".join(self.pieces)
        head, _, body = raw.partition(_HEAD_END)
        if not head.startswith(b"HTTP/1.1 200 "):
            raise BadStream(f"not a stream: {raw[:300]!r}")
        if raw.count(_DONE) != 1 or not body.endswith(_LAST_CHUNK):
            raise BadStream(f"a stream without its end: {raw[-300:]!r}")
        ends = list(accumulate(map(len, self.pieces)))
        tokens_ns: list[int] = []
        chunks = list(_TEXT.finditer(raw))
        for match in chunks:
            end = raw.index(b"\n\n", match.end()) + 2
            num_tokens = _count(msgspec.json.decode(match[1], type=str), texts, len(tokens_ns))
            tokens_ns += [self.arrivals_ns[bisect.bisect_left(ends, end)]] * num_tokens
        return Arrivals(tokens_ns, len(chunks))


def _count(text: str, texts: Sequence[str], num_before: int) -> int:
    """How many tokens a chunk's text is. Raises: BadStream where it is not the next ones."""
    num_tokens = 0
    while text:
        token = texts[(num_before + num_tokens) % len(texts)]
        if not text.startswith(token):
            raise BadStream(f"{text!r} came where {token!r} was sent, after {num_before} tokens")
        text = text.removeprefix(token)
        num_tokens += 1
    return num_tokens


def record_streams(
    address: tuple[str, int],
    requests: Sequence[bytes],
    *,
    timeout_s: float,
    look: Callable[[], None],
) -> list[Recording]:
    """Sends each request on a connection of its own and reads until all of them are closed or
    ended. `look` is called between reads, at least each 20 ms.

    Raises: TimeoutError, OSError.
    """
    recordings = [Recording() for _ in requests]
    sockets = [socket.create_connection(address) for _ in requests]
    poller = select.epoll()
    open_ones: dict[int, tuple[socket.socket, Recording]] = {}
    try:
        for connection, recording, request in zip(sockets, recordings, requests, strict=True):
            connection.sendall(request)
            connection.setblocking(False)
            open_ones[connection.fileno()] = connection, recording
            poller.register(connection, select.EPOLLIN)
        _read_all(poller, open_ones, deadline_s=time.monotonic() + timeout_s, look=look)
    finally:
        poller.close()
        for connection in sockets:
            connection.close()
    return recordings


def _read_all(
    poller: select.epoll,
    open_ones: dict[int, tuple[socket.socket, Recording]],
    *,
    deadline_s: float,
    look: Callable[[], None],
) -> None:
    while open_ones:
        for file_number, _ in poller.poll(_POLL_S):
            connection, recording = open_ones[file_number]
            piece = connection.recv(_READ_BYTES)
            recording.arrivals_ns.append(time.monotonic_ns())
            recording.pieces.append(piece)
            if not piece or piece.endswith(_LAST_CHUNK):
                poller.unregister(file_number)
                del open_ones[file_number]
        look()
        if time.monotonic() > deadline_s:
            raise TimeoutError
