"""Payloads of the lower tiers: what comes back of what was written."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from runtime.config import CacheFormat
from runtime.errors import ConfigError
from runtime.kv_codec import BLOCK_LEN, KvCodec, make_codec

NUM_VALUES = 20 * BLOCK_LEN
PAGE_BYTES = 2 * NUM_VALUES


def bfloat16_pages(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """values: [P, N], those that bfloat16 holds exactly."""
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)


def floats(pages: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    return (pages.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def random_pages(seed: int = 0, *, num_pages: int = 3) -> npt.NDArray[np.uint8]:
    rng = np.random.default_rng(seed)
    # Blocks of very different sizes, as keys have them.
    sizes = np.repeat(10.0 ** rng.uniform(-3, 2, (num_pages, 20)), BLOCK_LEN, axis=1)
    return bfloat16_pages((sizes * rng.standard_normal((num_pages, NUM_VALUES))).astype(np.float32))


def decoded(codec: KvCodec, payloads: Sequence[bytes | None]) -> npt.NDArray[np.uint8]:
    pages = np.full((len(payloads), PAGE_BYTES), 255, np.uint8)
    codec.decode([memoryview(one) for one in payloads if one is not None], pages)
    return pages


def test_raw_is_every_byte() -> None:
    codec = make_codec("raw", page_bytes=PAGE_BYTES, dtype="float32")
    pages = random_pages()
    payloads = codec.encode(pages)
    assert [len(one or b"") for one in payloads] == [codec.payload_bytes] * 3
    assert np.array_equal(decoded(codec, payloads), pages)


def test_int8_is_within_half_a_level_of_each_block() -> None:
    codec = make_codec("int8", page_bytes=PAGE_BYTES, dtype="bfloat16")
    pages = random_pages()
    payloads = codec.encode(pages)
    assert {len(one or b"") for one in payloads} == {codec.payload_bytes}
    assert codec.payload_bytes / PAGE_BYTES == pytest.approx(34 / 64)
    before, after = floats(pages), floats(decoded(codec, payloads))
    greatest = np.abs(before).reshape(-1, BLOCK_LEN).max(1)
    errors = np.abs(after - before).reshape(-1, BLOCK_LEN).max(1)
    # Half a level, the scale's rounding to 11 bits and the result's to 8.
    assert (errors <= greatest * (0.5 / 127 + 2**-11 + 2**-8)).all()
    assert errors.max() > 0


def test_int8_keeps_signs_zeros_and_the_greatest_value() -> None:
    values = np.zeros((1, NUM_VALUES), np.float32)
    values[0, :4] = 127.0, -127.0, 64.0, -1.0
    codec = make_codec("int8", page_bytes=PAGE_BYTES, dtype="bfloat16")
    (payload,) = codec.encode(bfloat16_pages(values))
    assert payload is not None
    assert np.array_equal(floats(decoded(codec, [payload])), values)


def test_int8_turns_no_sign_of_values_that_are_too_small_for_their_scale() -> None:
    values = np.full((1, NUM_VALUES), 1e-5, np.float32)
    values[0, ::2] = -1e-5
    pages = bfloat16_pages(values)
    codec = make_codec("int8", page_bytes=PAGE_BYTES, dtype="bfloat16")
    after = floats(decoded(codec, codec.encode(pages)))
    assert (np.sign(after) == np.sign(values)).all()
    assert np.abs(after - values).max() < 4e-6


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38])
def test_a_page_that_int8_cannot_hold_is_not_stored_and_others_are(value: float) -> None:
    values = np.ones((2, NUM_VALUES), np.float32)
    values[0, 77] = value
    codec = make_codec("int8", page_bytes=PAGE_BYTES, dtype="bfloat16")
    first, second = codec.encode(bfloat16_pages(values))
    assert first is None
    assert second is not None


FORMATS: tuple[CacheFormat, ...] = ("raw", "int8")


@pytest.mark.parametrize("name", FORMATS)
def test_a_payload_of_another_length_is_an_error(name: CacheFormat) -> None:
    codec = make_codec(name, page_bytes=PAGE_BYTES, dtype="bfloat16")
    with pytest.raises(ValueError, match=rf"has 5 bytes, not {codec.payload_bytes}"):
        codec.decode([b"12345"], np.empty((1, PAGE_BYTES), np.uint8))


def test_what_is_exact_is_not_stored_in_int8() -> None:
    with pytest.raises(ConfigError, match="int8 is not exact, and dtype float32 is"):
        make_codec("int8", page_bytes=PAGE_BYTES, dtype="float32")


def test_pages_that_are_no_whole_blocks_are_not_stored_in_int8() -> None:
    with pytest.raises(ConfigError, match="multiple of 32 values"):
        make_codec("int8", page_bytes=PAGE_BYTES + 2, dtype="bfloat16")
