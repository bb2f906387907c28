"""`radixgate cache` against a server that is none of ours: whatever it sends ends in one line."""

import gzip
import http.server
import json
import threading
from collections.abc import Iterator

import pytest

from gateway import cache_commands
from gateway.cli import main

STATE = {
    "model": "m", "scope": "own", "page_size": 16, "page_bytes": 1,
    "pool": {"pages": 1, "bytes": 1}, "tiers": [], "hit_rates": [], "owners": [], "hottest": [],
    "tree": {"nodes": [], "left_out": 0}, "object": "cache",
}  # fmt: skip
HOT = {"tokens": 1, "hits": 1, "starts_with": "Hi", "ends_with": None}


class StrangeServer:
    """`status`, `body` and `encoding` are its answer to everything; endless where that is said."""

    def __init__(self) -> None:
        self.status = 200
        self.body = b""
        self.encoding = "identity"
        self.is_endless = False

    def answer(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(self.status)
        handler.send_header("content-encoding", self.encoding)
        handler.end_headers()
        try:
            handler.wfile.write(self.body)
            while self.is_endless:
                handler.wfile.write(b" " * 65_536)
        except OSError:
            pass  # the client has had enough


@pytest.fixture
def server() -> StrangeServer:
    return StrangeServer()


@pytest.fixture
def url(server: StrangeServer) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.answer(self)

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()
        thread.join()


def failure(url: str, capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    assert main(["cache", "--url", url, *flags]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.rstrip("\n").isprintable()
    return err


@pytest.mark.parametrize("flags", [(), ("--json",)])
@pytest.mark.parametrize(
    "body", [b"", b"\xff\xfe", b"\x1b[2J", b"[" * 100_000, b'{"a": "\x1b"}', b'"\xff"']
)
def test_what_is_no_json_is_said_and_not_shown(
    server: StrangeServer,
    url: str,
    capsys: pytest.CaptureFixture[str],
    body: bytes,
    flags: tuple[str, ...],
) -> None:
    server.body = body
    assert "not a radixgate server" in failure(url, capsys, *flags)


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"error": "\\u001b[2J"}', b"\x1b[2J", b"[]"])
def test_an_error_that_is_no_error_object_is_said_in_a_line(
    server: StrangeServer, url: str, capsys: pytest.CaptureFixture[str], body: bytes
) -> None:
    server.status, server.body = 500, body
    assert failure(url, capsys).startswith("radixgate: 500: ")


def test_an_answer_that_does_not_end_is_given_up(
    server: StrangeServer,
    url: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server.is_endless = True
    monkeypatch.setattr(cache_commands, "MAX_ANSWER_BYTES", 200_000)
    assert "does not end" in failure(url, capsys)
    monkeypatch.setattr(cache_commands, "MAX_ANSWER_BYTES", 1 << 40)
    monkeypatch.setattr(cache_commands, "MAX_ANSWER_S", 0.0)
    assert "does not end" in failure(url, capsys)


def test_a_compressed_answer_is_not_blown_up(
    server: StrangeServer, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server.encoding, server.body = "gzip", gzip.compress(json.dumps(STATE).encode())
    assert "not a radixgate server" in failure(url, capsys)


@pytest.mark.parametrize("moment", ["\x1b[2J", "99999-01-01", "", "2026-01-01", "9" * 1000])
def test_a_time_that_is_none_is_shown_as_it_is_and_harmless(
    server: StrangeServer, url: str, capsys: pytest.CaptureFixture[str], moment: str
) -> None:
    server.body = json.dumps({**STATE, "hottest": [{**HOT, "last_used_at": moment}]}).encode()
    assert main(["cache", "--url", url]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "Hi" in out
    assert moment[:5].replace("\x1b", "\\x1b") in out
    assert "\x1b" not in out


def test_json_is_shown_as_it_came_with_escapes_for_what_a_terminal_obeys(
    server: StrangeServer, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server.body = '{"b": "\u009b2J\x7f é",  "a": 1}'.encode()
    assert main(["cache", "--json", "--url", url]) == 0
    out = capsys.readouterr().out
    assert out == '{"b": "\\u009b2J\\u007f é",  "a": 1}\n'
    assert json.loads(out)["b"] == "\u009b2J\x7f é"
