"""Calls to Redis that are bounded in time as a whole, through a breaker, from any thread.

    replies = calls.run([(b"SET", key, value), (b"EXISTS", other)])

redis-py reads the URL, connects and authenticates; what follows is written and read here (resp.py).
"""

import logging
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from prefix_cache.tiers.breaker import Breaker, BreakerOpen, FailureKind
from prefix_cache.tiers.redis_url import RedisURLError, check_redis_url
from prefix_cache.tiers.resp import (
    Buffer,
    Command,
    ProtocolError,
    Refusal,
    Reply,
    ReplyReader,
    pack,
    small_buffer,
)

if TYPE_CHECKING:
    from redis.connection import AbstractConnection

TIMEOUT_S = 0.1
# That of calls which no request waits for. They come from a thread of the lowest priority, which
# gets no core for longer than TIMEOUT_S where all are busy: Redis is not to blame for that.
PATIENT_S = 1.0
# A call takes one of these and what its bytes take at this rate: slower, computing is faster.
MIN_BYTES_PER_S = 20e6
MAX_CALL_S = 2.0
_MAX_IDLE_LINES = 4
# Replies that are errors and say nothing against the server: the caller looks at them.
_KINDS_OF_REPLIES: dict[str, FailureKind] = {
    "OOM": "full",
    "MISCONF": "readonly",
    "READONLY": "readonly",
    "NOREPLICAS": "readonly",
    "NOAUTH": "auth",
    "WRONGPASS": "auth",
    "NOPERM": "auth",
    "MOVED": "moved",
    "ASK": "moved",
    "CROSSSLOT": "moved",
    "CLUSTERDOWN": "moved",
    "LOADING": "busy",
    "BUSY": "busy",
    "MASTERDOWN": "busy",
    "TRYAGAIN": "busy",
}
_HINTS: dict[FailureKind, str] = {
    "moved": "it is part of a cluster; name a single server",
    "auth": "user, password or permissions are wrong",
}

logger = logging.getLogger(__name__)


class RedisUnavailable(Exception):
    """No answer, or none that can be used. `replies` are those that came before."""

    def __init__(self, kind: FailureKind | None, reason: str, replies: Sequence[Reply] = ()):
        """`kind` None: it was not asked, as it failed a moment ago."""
        super().__init__(reason)
        self.kind = kind
        self.replies = replies


def write_refusal(reply: Reply) -> FailureKind | None:
    """Why a write was refused by a server that answers what reads; None if it was not."""
    kind = _KINDS_OF_REPLIES.get(reply.code) if isinstance(reply, Refusal) else None
    return kind if kind in ("full", "readonly") else None


class TimeBound:
    """Until when a call may take: `base_s`, and longer by what its bytes take at the lowest rate
    that is any use."""

    def __init__(self, base_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._base_s = base_s
        self._clock = clock
        self._started = clock()
        self._num_bytes = 0

    def add_bytes(self, num_bytes: int) -> None:
        self._num_bytes += num_bytes

    def left_s(self) -> float:
        """Raises: TimeoutError once it is over."""
        allowed_s = min(MAX_CALL_S, self._base_s + self._num_bytes / MIN_BYTES_PER_S)
        left_s = self._started + allowed_s - self._clock()
        if left_s <= 0:
            raise TimeoutError(f"no answer within {allowed_s:.2g} s")
        return left_s


class RedisCalls:
    """Connects with the first call; keeps a few connections."""

    def __init__(
        self,
        url: str,
        *,
        breaker: Breaker | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Raises: RedisURLError."""
        self.breaker = breaker or Breaker("the Redis of the prefix cache")
        self._make_connection = _connection_maker(url, timeout_s)
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._idle: list[_Line] = []
        self._is_closed = False

    def run(
        self,
        commands: Sequence[Command],
        *,
        take_buffer: Callable[[int], memoryview] = small_buffer,
        expected_bytes: int = 0,
        allows_refusals: bool = False,
        is_patient: bool = False,
    ) -> list[Reply]:
        """One reply for each command. A write that a full or read-only server refuses, or a key of
        another type, is a reply; any other error is a failure of the server, but where
        `allows_refusals`. `is_patient`: it may take PATIENT_S, as no request waits for it.

        Raises: RedisUnavailable.
        """
        try:
            is_trial = self.breaker.enter()
        except BreakerOpen as error:
            raise RedisUnavailable(None, str(error)) from None
        replies: list[Reply] = []
        try:
            bound = TimeBound(max(self._timeout_s, PATIENT_S) if is_patient else self._timeout_s)
            self._exchange(commands, replies, bound, take_buffer, expected_bytes)
            if not allows_refusals:
                _check(replies)
        except Exception as error:
            told = _explain(error)
            if told is None:  # a fault of ours, after which another call has to try
                self.breaker.leave(is_trial=is_trial)
                raise
            kind, reason = told
            self.breaker.fail(kind, reason, is_trial=is_trial)
            raise RedisUnavailable(kind, reason, replies) from error
        self.breaker.succeed(is_trial=is_trial)
        return replies

    def close(self) -> None:
        """Calls that are under way end within their bounds."""
        with self._lock:
            self._is_closed = True
            lines, self._idle = self._idle, []
        for line in lines:
            line.close()

    def _exchange(
        self,
        commands: Sequence[Command],
        replies: list[Reply],
        bound: TimeBound,
        take_buffer: Callable[[int], memoryview],
        expected_bytes: int,
    ) -> None:
        line = self._take_line()
        try:
            line.connect(bound)
            line.send(pack(commands), bound)
            reader = ReplyReader(
                line.receive_within(bound), take_buffer=take_buffer, expected_bytes=expected_bytes
            )
            for _ in commands:
                replies.append(reader.read())
            if reader.num_unread:
                raise ProtocolError("more replies than commands")
        except BaseException:
            line.close()
            raise
        self._give_back(line)

    def _take_line(self) -> "_Line":
        while True:
            with self._lock:
                line = self._idle.pop() if self._idle else None
            if line is None:
                return _Line(self._make_connection)
            if line.is_usable():
                return line
            line.close()

    def _give_back(self, line: "_Line") -> None:
        with self._lock:
            if not self._is_closed and len(self._idle) < _MAX_IDLE_LINES:
                self._idle.append(line)
                return
        line.close()


class _Line:
    """One connection. While redis-py connects, this is its parser: it hands over the socket, and
    has the answers of the handshake read by our reader, within our bound."""

    def __init__(self, make_connection: "Callable[[Any], AbstractConnection]") -> None:
        self._connection = make_connection(lambda socket_read_size: self)  # noqa: ARG005
        self._socket: socket.socket | None = None
        self._bound: TimeBound | None = None

    def is_usable(self) -> bool:
        """Whether nothing came since the last reply, such as the end of the connection."""
        poller = select.poll()
        poller.register(self._open_socket(), select.POLLIN)
        return not poller.poll(0)

    def connect(self, bound: TimeBound) -> None:
        if self._socket is None:
            self._bound = bound
            self._connection.connect()  # type: ignore[no-untyped-call]

    def send(self, buffers: Sequence[Buffer], bound: TimeBound) -> None:
        for buffer in buffers:
            bound.add_bytes(len(buffer))
            self._open_socket().settimeout(bound.left_s())
            self._open_socket().sendall(buffer)

    def receive_within(self, bound: TimeBound) -> Callable[[memoryview], int]:
        """Set once, as each setting would let go of the interpreter's lock once more: a read waits
        no longer than the base, and what all may take is looked at before each."""
        self._open_socket().settimeout(bound.left_s())

        def receive(buffer: memoryview) -> int:
            bound.left_s()
            num_bytes = self._open_socket().recv_into(buffer)
            if not num_bytes:
                raise ConnectionResetError("the server closed the connection")
            bound.add_bytes(num_bytes)
            return num_bytes

        return receive

    def close(self) -> None:
        self._connection.disconnect()  # type: ignore[no-untyped-call]

    def _open_socket(self) -> socket.socket:
        if self._socket is None:
            raise ConnectionResetError("the connection is closed")
        return self._socket

    # What redis-py asks of a parser.

    def on_connect(self, connection: Any) -> None:
        self._socket = connection._sock

    def on_disconnect(self) -> None:
        self._socket = None

    def can_read(self, _timeout: float = 0) -> bool:
        return not self.is_usable()

    def read_response(self, *_: Any, **__: Any) -> Reply:
        assert self._bound is not None
        reader = ReplyReader(self.receive_within(self._bound))
        reply = reader.read()
        _check([reply])
        if reader.num_unread:
            raise ProtocolError("more replies than commands")
        return reply


class _ReplyError(Exception):
    """A reply that says that this server is none for us."""

    def __init__(self, kind: FailureKind, line: str) -> None:
        super().__init__(line)
        self.kind: FailureKind = kind


def _check(replies: Sequence[Reply]) -> None:
    for reply in replies:
        if not isinstance(reply, Refusal) or write_refusal(reply) or reply.code == "WRONGTYPE":
            continue
        raise _ReplyError(_KINDS_OF_REPLIES.get(reply.code, "error"), reply.line)


def _explain(error: Exception) -> tuple[FailureKind, str] | None:
    """The kind of a failure, and a line for the log; None where it is no failure of a server."""
    from redis import exceptions

    reason = next(iter(str(error).splitlines()), type(error).__name__)[:200]
    if isinstance(error, _ReplyError):
        hint = _HINTS.get(error.kind)
        return error.kind, f"{reason}; {hint}" if hint else reason
    if isinstance(error, ProtocolError):
        return "garbage", reason
    if isinstance(error, (TimeoutError, exceptions.TimeoutError)):
        return "timeout", reason
    if isinstance(error, (OSError, exceptions.ConnectionError)):
        is_cut = isinstance(error, (ConnectionResetError, BrokenPipeError))
        return "closed" if is_cut else "refused", reason
    if isinstance(error, exceptions.RedisError):
        return "error", reason
    return None


def _connection_maker(url: str, timeout_s: float) -> "Callable[[Any], AbstractConnection]":
    # Imported here: without a URL its import would be paid for nothing.
    from redis.backoff import NoBackoff
    from redis.connection import Connection, parse_url
    from redis.retry import Retry

    check_redis_url(url)

    def make(parser_class: Any) -> "AbstractConnection":
        connection: AbstractConnection = connection_class(**options, parser_class=parser_class)
        return connection

    try:
        options: dict[str, Any] = parse_url(url)  # type: ignore[no-untyped-call]
        connection_class = options.pop("connection_class", Connection)
        for name in ("max_connections", "timeout"):  # of a pool
            options.pop(name, None)
        options |= {
            "socket_timeout": timeout_s,
            "socket_connect_timeout": timeout_s,
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
            "health_check_interval": 0,
            "decode_responses": False,
            "driver_info": None,
        }
        # An option in the URL that does not exist is found now.
        make(lambda socket_read_size: None)  # noqa: ARG005
    except (TypeError, ValueError) as error:
        raise RedisURLError(f"an option in the URL cannot be read: {error}") from None
    return make
