"""Pictures of pages for the docs: a browser's PNG in 256 colours, a fraction of its size."""

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOURS = 256
_RGB = 2
_INDEXED = 3

Bytes = NDArray[np.uint8]


def with_palette(png: bytes) -> bytes:
    """The same picture in the colours that are most frequent in it; pixels of others, which are
    few on a page, get the nearest. Takes 8-bit RGB without interlacing."""
    chunks = _chunks(png)
    width, height, depth, kind, _, _, interlace = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert (depth, kind, interlace) == (8, _RGB, 0)
    rows = _rows(zlib.decompress(chunks[b"IDAT"]), width=width, height=height)
    colours, places, counts = np.unique(
        rows.reshape(-1, 3), axis=0, return_inverse=True, return_counts=True
    )
    palette = colours[np.argsort(-counts)[:_COLOURS]]
    distances = np.abs(colours[:, None].astype(np.int16) - palette[None]).sum(axis=2)
    pixels = distances.argmin(axis=1).astype(np.uint8)[places.reshape(height, width)]
    lines = np.zeros((height, width + 1), np.uint8)  # each begins with 0: no filter
    lines[:, 1:] = pixels
    return b"".join(
        (
            _SIGNATURE,
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, _INDEXED, 0, 0, 0)),
            _chunk(b"PLTE", palette.tobytes()),
            _chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)),
            _chunk(b"IEND", b""),
        )
    )


def _chunks(png: bytes) -> dict[bytes, bytes]:
    """By name; those of one name joined."""
    chunks: dict[bytes, bytes] = {}
    at = len(_SIGNATURE)
    while at < len(png):
        (length,) = struct.unpack_from(">I", png, at)
        name = png[at + 4 : at + 8]
        chunks[name] = chunks.get(name, b"") + png[at + 8 : at + 8 + length]
        at += length + 12
    return chunks


def _chunk(name: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(name + content)
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", checksum)


def _rows(raw: bytes, *, width: int, height: int) -> Bytes:
    """The pixels, with each row's filter undone (PNG specification, section 9)."""
    lines = np.frombuffer(raw, np.uint8).reshape(height, 1 + 3 * width)
    above = np.zeros(3 * width, np.uint8)
    rows = []
    for line in lines:
        above = _unfiltered(int(line[0]), line[1:], above)
        rows.append(above)
    return np.stack(rows)


def _unfiltered(kind: int, line: Bytes, above: Bytes) -> Bytes:
    if kind == 0:
        return line.copy()
    if kind == 1:
        return np.cumsum(line.reshape(-1, 3), axis=0, dtype=np.uint8).reshape(-1)
    if kind == 2:
        return line + above
    done = [0, 0, 0]
    corner = [0, 0, 0]
    for value, up in zip(line.tolist(), above.tolist(), strict=True):
        left, up_left = done[-3], corner[-3]
        guess = (left + up) // 2 if kind == 3 else _paeth(left, up, up_left)
        done.append((value + guess) % 256)
        corner.append(up)
    return np.array(done[3:], np.uint8)


def _paeth(left: int, up: int, up_left: int) -> int:
    guess = left + up - up_left
    return min((left, up, up_left), key=lambda near: abs(guess - near))
