"""A proxy between a client and a Redis, which is slow, refuses, cuts, or answers with garbage."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Self

GARBAGE = b"\x00\xff*-$ this is no protocol at all \r\n" * 64


class FlakyRedis:
    """Listens on a port of its own; its faults may be changed at any time. A thread for each
    direction of each connection."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._is_closed = threading.Event()
        # Each reply comes so much later.
        self.delay_s = 0.0
        # Connections are closed at once.
        self.refuses = False
        # Replies are something else.
        self.sends_garbage = False
        # So many bytes of replies pass, then the connection is cut; None = all.
        self.bytes_to_cut: int | None = None
        self.num_connections = 0

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._is_closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(5)

    def cut(self) -> None:
        """Ends all connections."""
        with self._lock:
            sockets, self._sockets = self._sockets, set()
        for one in sockets:
            _close(one)

    def _start(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._is_closed.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.num_connections += 1
            server = None if self.refuses else self._connect()
            if server is None:
                client.close()
                continue
            with self._lock:
                self._sockets |= {client, server}
            self._start(self._copy, client, server)
            self._start(self._answer, server, client)

    def _connect(self) -> socket.socket | None:
        try:
            return socket.create_connection(("127.0.0.1", self._server_port))
        except OSError:
            return None

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        for data in _pieces(source):
            with contextlib.suppress(OSError):
                target.sendall(data)
        _close(target)
        _close(source)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        for data in _pieces(server):
            if self.delay_s:
                self._is_closed.wait(self.delay_s)
            passed = GARBAGE if self.sends_garbage else data
            if self.bytes_to_cut is not None:
                passed = passed[: self.bytes_to_cut]
                self.bytes_to_cut -= len(passed)
            with contextlib.suppress(OSError):
                client.sendall(passed)
            if self.bytes_to_cut == 0:
                break
        _close(client)
        _close(server)


def _pieces(source: socket.socket) -> Iterator[bytes]:
    try:
        while data := source.recv(65536):
            yield data
    except OSError:
        return


def _close(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
