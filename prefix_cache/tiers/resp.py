"""As much of Redis' protocol (RESP 2) as pages need: commands packed without a copy of what is
large, replies read into few large buffers of which they are views. Knows no sockets.

A client library makes a `bytes` of each reply, in many small reads: for 32 MB that is up to ten
times the time, with the interpreter's lock held, or waited for, at each of hundreds of reads.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

Buffer = bytes | memoryview
# A tuple is one argument in pieces.
Argument = Buffer | int | tuple[Buffer, ...]
Command = Sequence[Argument]

SMALL_BUFFER_BYTES = 16 * 1024
MAX_VALUE_BYTES = 256 * 1024 * 1024
_MAX_ITEMS = 1 << 20
_MAX_DEPTH = 4
_LINE_STEPS = (64, 4096)
# Smaller replies are copied out of the buffer, smaller arguments into the packed command.
_VIEW_BYTES = 4096


class ProtocolError(Exception):
    """What came is not Redis' protocol."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reply that is an error; `code` is its first word, such as OOM."""

    line: str

    @property
    def code(self) -> str:
        return self.line.partition(" ")[0]


Reply = Buffer | int | Refusal | None | list["Reply"]


def pack(commands: Iterable[Command]) -> list[Buffer]:
    """Buffers to send one after the other; large pieces are the caller's own."""
    packed: list[Buffer] = []
    small = bytearray()
    for command in commands:
        small += b"*%d\r\n" % len(command)
        for argument in command:
            pieces = _pieces(argument)
            small += b"$%d\r\n" % sum(map(len, pieces))
            for piece in pieces:
                if len(piece) < _VIEW_BYTES:
                    small += piece
                else:
                    packed += (bytes(small), piece)
                    small.clear()
            small += b"\r\n"
    packed.append(bytes(small))
    return packed


def _pieces(argument: Argument) -> tuple[Buffer, ...]:
    if isinstance(argument, tuple):
        return argument
    return (b"%d" % argument,) if isinstance(argument, int) else (argument,)


def small_buffer(num_bytes: int) -> memoryview:
    """A new buffer; for large ones see buffers.BufferPool."""
    return memoryview(bytearray(num_bytes))


class ReplyReader:
    """Reads replies one after the other. Large ones are views, which keep their buffer alive."""

    def __init__(
        self,
        receive: Callable[[memoryview], int],
        *,
        take_buffer: Callable[[int], memoryview] = small_buffer,
        expected_bytes: int = 0,
    ) -> None:
        """`receive` fills the beginning of a buffer and says how much, at least 1, or raises."""
        self._receive = receive
        self._take_buffer = take_buffer
        self._buffer = take_buffer(max(SMALL_BUFFER_BYTES, expected_bytes))
        self._start = 0
        self._end = 0

    @property
    def num_unread(self) -> int:
        """Bytes that came behind the last reply."""
        return self._end - self._start

    def read(self) -> Reply:
        """Raises: ProtocolError, and whatever `receive` does."""
        return self._read(0)

    def _read(self, depth: int) -> Reply:
        line = self._line()
        match line[:1]:
            case b"+":
                return line[1:]
            case b"-":
                return Refusal(line[1:].decode("utf-8", "replace"))
            case b":":
                return _number(line)
            case b"$":
                return self._bulk(_number(line))
            case b"*" if depth < _MAX_DEPTH:
                return self._items(_number(line), depth)
        raise ProtocolError("no reply of Redis begins like this")

    def _items(self, count: int, depth: int) -> Reply:
        if count == -1:
            return None
        if not 0 <= count <= _MAX_ITEMS:
            raise ProtocolError(f"an array of {count} items")
        return [self._read(depth + 1) for _ in range(count)]

    def _bulk(self, length: int) -> Reply:
        if length == -1:
            return None
        if not 0 <= length <= MAX_VALUE_BYTES:
            raise ProtocolError(f"a value of {length} bytes")
        self._need(length + 2)
        value_end = self._start + length
        value = self._buffer[self._start : value_end]
        if bytes(self._buffer[value_end : value_end + 2]) != b"\r\n":
            raise ProtocolError("a value is longer than it says")
        self._start = value_end + 2
        return value if length >= _VIEW_BYTES else bytes(value)

    def _line(self) -> bytes:
        searched = 0
        while True:
            for step in _LINE_STEPS:
                seen = bytes(self._buffer[self._start : min(self._end, self._start + step)])
                end = seen.find(b"\r\n", max(0, searched - 1))
                if end >= 0:
                    self._start += end + 2
                    return seen[:end]
            searched = len(seen)
            if searched >= _LINE_STEPS[-1]:
                raise ProtocolError("a line without an end")
            self._need(searched + 1)

    def _need(self, num_bytes: int) -> None:
        """Receives until so many unread bytes lie in one buffer."""
        while self.num_unread < num_bytes:
            if self._start + num_bytes > len(self._buffer):
                self._move(num_bytes)
            self._end += self._receive(self._buffer[self._end :])

    def _move(self, num_bytes: int) -> None:
        buffer = self._take_buffer(max(num_bytes, len(self._buffer)))
        unread = self.num_unread
        buffer[:unread] = self._buffer[self._start : self._end]
        self._buffer, self._start, self._end = buffer, 0, unread


def _number(line: bytes) -> int:
    if not re.fullmatch(rb"-?[0-9]{1,19}", line[1:]):
        raise ProtocolError("a number that is none")
    return int(line[1:])
