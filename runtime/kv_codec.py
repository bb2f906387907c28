"""How pages of keys and values are written for the lower tiers: as they are, or in 8 bits.

A payload says nothing of itself: format and version are in the identity it is stored under. Plain
numpy, called from the tier threads.

int8: blocks of 32 values that lie side by side, each with one float16 scale (greatest magnitude /
127), as in GGUF's q8_0: 53 % of the bytes. In both layouts of pages such a block is of one head: of
one token, or, in the native one, of two channels of 16 tokens (keys) or 16 channels of two tokens
(values).
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from runtime.config import CacheFormat
from runtime.errors import ConfigError
from runtime.page_io import PageBytes

CODEC_VERSION = 1  # goes up when the bytes of a payload change
BLOCK_LEN = 32
_MAX_LEVEL = 127

Payload = bytes | memoryview


class KvCodec(Protocol):
    """Payloads of one format for pages of one size."""

    @property
    def page_bytes(self) -> int: ...

    @property
    def payload_bytes(self) -> int:
        """Of each payload."""

    def encode(self, pages: PageBytes) -> list[bytes | None]:
        """pages: [P, page_bytes]. None for a page that the format cannot hold."""

    def decode(self, payloads: Sequence[Payload], pages: PageBytes) -> None:
        """Writes to `pages`, [P, page_bytes]. Raises: ValueError for a payload of another
        length."""


def make_codec(name: CacheFormat, *, page_bytes: int, dtype: str) -> KvCodec:
    """`dtype`: of the values in a page. Raises: ConfigError."""
    if name == "raw":
        return RawCodec(page_bytes)
    if dtype != "bfloat16":
        raise ConfigError(
            f"the cache format int8 is not exact, and dtype {dtype} is; use raw, or dtype bfloat16"
        )
    if page_bytes % (2 * BLOCK_LEN):
        raise ConfigError(
            f"the cache format int8 needs pages of a multiple of {BLOCK_LEN} values; use raw"
        )
    return Int8Codec(page_bytes)


class RawCodec:
    """Bytes as they are."""

    def __init__(self, page_bytes: int) -> None:
        self.page_bytes = self.payload_bytes = page_bytes

    def encode(self, pages: PageBytes) -> list[bytes | None]:
        return [page.tobytes() for page in pages]

    def decode(self, payloads: Sequence[Payload], pages: PageBytes) -> None:
        for page, payload in zip(pages, payloads, strict=True):
            page[:] = _bytes(payload, self.payload_bytes)


class Int8Codec:
    """A payload: the scales of all blocks, [B] float16, then their levels, [B, 32] int8."""

    def __init__(self, page_bytes: int) -> None:
        self.page_bytes = page_bytes
        self._num_blocks = page_bytes // (2 * BLOCK_LEN)
        self._scale_bytes = 2 * self._num_blocks
        self.payload_bytes = self._scale_bytes + self._num_blocks * BLOCK_LEN

    def encode(self, pages: PageBytes) -> list[bytes | None]:
        return [self._encode(page) for page in pages]

    def decode(self, payloads: Sequence[Payload], pages: PageBytes) -> None:
        for page, payload in zip(pages, payloads, strict=True):
            values = _bytes(payload, self.payload_bytes)
            scales = values[: self._scale_bytes].view(np.float16).astype(np.float32)
            levels = values[self._scale_bytes :].view(np.int8).reshape(-1, BLOCK_LEN)
            page.view(np.uint16)[:] = _to_bfloat16(levels * scales[:, None])

    def _encode(self, page: PageBytes) -> bytes | None:
        """None for a page with a value that is not finite, or too large for a scale."""
        blocks = _from_bfloat16(page.view(np.uint16)).reshape(-1, BLOCK_LEN)
        greatest = np.maximum(blocks.max(1), -blocks.min(1))
        with np.errstate(over="ignore"):
            scales = (greatest / np.float32(_MAX_LEVEL)).astype(np.float16)
        if not np.isfinite(scales).all():
            return None
        used = scales.astype(np.float32)
        used[used == 0] = np.inf
        np.divide(blocks, used[:, None], out=blocks)
        np.rint(blocks, out=blocks)
        # The scale was rounded, so that a level may come out beyond the last.
        np.clip(blocks, -_MAX_LEVEL, _MAX_LEVEL, out=blocks)
        return bytes(scales.tobytes() + blocks.astype(np.int8).tobytes())


def _bytes(payload: Payload, num_bytes: int) -> PageBytes:
    """A view. Raises: ValueError for another length."""
    if len(payload) != num_bytes:
        raise ValueError(f"a payload has {len(payload)} bytes, not {num_bytes}")
    return np.frombuffer(payload, np.uint8)


def _from_bfloat16(values: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    return (values.astype(np.uint32) << 16).view(np.float32)


def _to_bfloat16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Rounded to the nearest; of finite values. values: [B, 32], the result is flat."""
    bits = values.reshape(-1).view(np.uint32)
    bits += 0x7FFF + ((bits >> 16) & 1)
    return (bits >> 16).astype(np.uint16)
