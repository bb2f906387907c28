"""When a piece of a body goes straight to the connection, and when it is left to `send`."""

from types import SimpleNamespace
from typing import Any

import pytest

from gateway.direct_write import DirectWrite, direct_write, offer_direct_write


class Connection:
    """A request's cycle whose answer has begun; `written` is what came to the transport."""

    def __init__(self, **changes: Any) -> None:
        self.written: list[bytes] = []
        self.flow = SimpleNamespace(write_paused=False)
        self.transport = SimpleNamespace(write=self.written.append)
        self.scope: dict[str, Any] = {"type": "http"}
        self.response_started = True
        self.response_complete = False
        self.disconnected = False
        self.chunked_encoding: bool | None = True
        for name, value in changes.items():
            setattr(self, name, value)

    def offered(self) -> DirectWrite:
        offer_direct_write(self)  # type: ignore[arg-type]
        write = direct_write(self.scope)
        assert write is not None
        return write


def test_a_piece_is_one_chunk() -> None:
    connection = Connection()
    write = connection.offered()
    assert write(b"data: 1\n\n")
    assert write(b"x" * 300)
    assert connection.written == [b"9\r\ndata: 1\n\n\r\n", b"12c\r\n" + b"x" * 300 + b"\r\n"]


@pytest.mark.parametrize(
    "changes",
    [
        {"response_started": False},
        {"response_complete": True},
        {"disconnected": True},
        {"chunked_encoding": None},
        {"chunked_encoding": False},
        {"flow": SimpleNamespace(write_paused=True)},
    ],
)
def test_what_only_send_can_do_is_left_to_it(changes: dict[str, Any]) -> None:
    connection = Connection(**changes)
    assert not connection.offered()(b"data: 1\n\n")
    assert connection.written == []


def test_nothing_is_no_chunk_as_that_would_be_the_end() -> None:
    connection = Connection()
    assert not connection.offered()(b"")
    assert connection.written == []


def test_another_servers_scope_has_none() -> None:
    assert direct_write({"type": "http"}) is None
    assert direct_write({"type": "http", "extensions": {"http.response.debug": {}}}) is None
