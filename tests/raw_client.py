"""A client that writes an HTTP request as bytes and may leave at any of them."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

CHAT = "/v1/chat/completions"
NO_HEADERS: Mapping[str, str] = {}


@asynccontextmanager
async def connection(base_url: str) -> AsyncIterator[asyncio.StreamWriter]:
    """A socket to the server, closed at the end of the block."""
    host, port = base_url.removeprefix("http://").split(":")
    _reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield writer
    finally:
        writer.close()


def raw_request(
    body: dict[str, Any], *, missing: int = 0, headers: Mapping[str, str] = NO_HEADERS
) -> bytes:
    """A chat request, without its last `missing` bytes."""
    data = json.dumps(body).encode()
    fields = {
        "host": "x",
        "content-type": "application/json",
        "content-length": str(len(data)),
        **headers,
    }
    lines = [f"POST {CHAT} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    raw = "\r\n".join([*lines, "", ""]).encode() + data
    return raw[: len(raw) - missing]
