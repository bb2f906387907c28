"""A collector that counts: `python -m tests.bench.span_collector --answers live`.

Takes OTLP over HTTP on a port of its own, which it prints, and counts spans without reading them:
what it costs shall not be taken for what tracing costs. GET /count says how many were accepted.
"""

import argparse
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Literal, get_args

Answers = Literal["live", "slow", "refusing"]
SLOW_S = 2.0

_LENGTH_DELIMITED = 2
# Field numbers of opentelemetry/proto/trace/v1: resource_spans, scope_spans, spans.
_RESOURCE_SPANS, _SCOPE_SPANS, _SPANS = 1, 2, 2


def count_spans(body: memoryview) -> int:
    """In an ExportTraceServiceRequest. Raises: ValueError for what is none."""
    return sum(
        1
        for resource in _messages(body, _RESOURCE_SPANS)
        for scope in _messages(resource, _SCOPE_SPANS)
        for _ in _messages(scope, _SPANS)
    )


def _messages(message: memoryview, field: int) -> Iterator[memoryview]:
    """Its fields of this number, of which only messages have a length."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        if key & 7 != _LENGTH_DELIMITED:
            raise ValueError(f"wire type {key & 7} in a message of messages and texts")
        size, at = _varint(message, at)
        if at + size > len(message):
            raise ValueError("a field is longer than its message")
        if key >> 3 == field:
            yield message[at : at + size]
        at += size


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """The number, and where the next field begins."""
    value = shift = 0
    while at < len(message):
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a number has no end")


def make_server(answers: Answers) -> HTTPServer:
    """On a free port of this machine."""
    num_spans = 0
    pause = threading.Event()

    class Collect(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            nonlocal num_spans
            body = self.rfile.read(int(self.headers["content-length"]))
            if answers == "refusing":
                self._answer(400, b"")
                return
            if answers == "slow":
                pause.wait(SLOW_S)
            num_spans += count_spans(memoryview(body))
            self._answer(200, b"")

        def do_GET(self) -> None:
            self._answer(200, json.dumps(num_spans).encode())

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            # One connection at a time: whoever asks for the count must get its turn.
            self.send_header("connection", "close")
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    return HTTPServer(("127.0.0.1", 0), Collect)


def main() -> int:
    """Serves until it is killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answers", choices=get_args(Answers), default="live")
    server = make_server(parser.parse_args().answers)
    print(server.server_address[1], flush=True)
    server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
