"""The format of a page outside the device: what was written comes back, and nothing else does."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefix_cache.tiers.page_file import (
    FIXED_BYTES,
    PageRejected,
    decode_page,
    encode_page,
    encoded_len,
    total_len,
)
from prefix_cache.tiers.tier import PageKey
from tests.tier_pages import key_of, payload_of, root_of

ROOT = root_of("model")
KEY = key_of(7)
PAYLOAD = payload_of(7)
RAW = b"".join(encode_page(KEY, PAYLOAD, root=ROOT))
EXAMPLES = settings(derandomize=True, deadline=None, max_examples=150)

KEYS = st.builds(PageKey, identity=st.binary(min_size=32, max_size=32), tokens=st.binary())


def reason_of(raw: bytes, key: PageKey = KEY, *, root: bytes = ROOT) -> str:
    with pytest.raises(PageRejected) as caught:
        decode_page(raw, key, root=root)
    return caught.value.reason


@EXAMPLES
@given(key=KEYS, payload=st.binary(max_size=600), root=st.binary(min_size=32, max_size=32))
def test_what_was_encoded_comes_back(key: PageKey, payload: bytes, root: bytes) -> None:
    raw = b"".join(encode_page(key, payload, root=root))
    assert decode_page(raw, key, root=root) == payload
    assert encoded_len(key, payload) == len(raw) == total_len(raw[:FIXED_BYTES])


def test_any_flipped_bit_is_rejected() -> None:
    for bit in range(len(RAW) * 8):
        damaged = bytearray(RAW)
        damaged[bit // 8] ^= 1 << bit % 8
        assert reason_of(bytes(damaged)) in {"version", "length", "checksum"}


def test_any_cut_is_rejected_and_anything_behind_the_end() -> None:
    assert {reason_of(RAW[:cut]) for cut in range(len(RAW))} == {"length"}
    assert reason_of(RAW + b"\0") == "length"


@EXAMPLES
@given(start=st.integers(0, len(RAW) - 1), num_bytes=st.integers(1, 200))
def test_a_stretch_of_zeros_is_rejected_as_a_power_loss_leaves_it(
    start: int, num_bytes: int
) -> None:
    stretch = RAW[start : start + num_bytes]
    damaged = RAW[:start] + bytes(len(stretch)) + RAW[start + num_bytes :]
    if damaged == RAW:
        return
    assert reason_of(damaged) in {"version", "length", "checksum"}


@EXAMPLES
@given(raw=st.binary(max_size=400))
def test_garbage_is_rejected(raw: bytes) -> None:
    assert reason_of(raw) in {"version", "length"}
    assert reason_of(RAW[:12] + raw) in {"length", "checksum"}


@EXAMPLES
@given(key=KEYS)
def test_a_sound_page_under_another_name_is_rejected(key: PageKey) -> None:
    assert reason_of(RAW, key) == "identity"


def test_a_page_is_rejected_for_what_differs() -> None:
    other = key_of(8)
    assert reason_of(RAW, root=root_of("another model")) == "root"
    assert reason_of(RAW, PageKey(KEY.identity, other.tokens)) == "tokens"
    assert reason_of(RAW, PageKey(KEY.identity, KEY.tokens[:-4])) == "tokens"
    assert reason_of(RAW, PageKey(other.identity, KEY.tokens)) == "identity"
    assert reason_of(RAW[:8] + b"\0\0\0\2" + RAW[12:]) == "version"
    assert reason_of(b"X" + RAW[1:]) == "version"


def test_the_payload_is_copied_neither_on_its_way_out_nor_back() -> None:
    payload = memoryview(bytearray(PAYLOAD))
    head, body = encode_page(KEY, payload, root=ROOT)
    assert body is payload
    raw = bytearray(head + body)
    view = decode_page(raw, KEY, root=ROOT)
    raw[-1] ^= 1
    assert view[-1] == raw[-1]


def test_a_payload_of_wider_items_is_measured_in_bytes() -> None:
    numbers = memoryview(bytes(range(16))).cast("I")
    raw = b"".join(encode_page(KEY, numbers, root=ROOT))
    assert decode_page(raw, KEY, root=ROOT) == bytes(range(16))
    assert encoded_len(KEY, numbers) == len(raw)


def test_names_of_another_length_are_no_names() -> None:
    with pytest.raises(ValueError, match="31"):
        encode_page(KEY, PAYLOAD, root=ROOT[:31])
    with pytest.raises(ValueError, match="33"):
        encode_page(PageKey(KEY.identity + b"x", KEY.tokens), PAYLOAD, root=ROOT)
