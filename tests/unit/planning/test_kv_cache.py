"""Bytes of keys and values: known answers, windows, sharing."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planning.errors import PlanError
from planning.known_models import KNOWN_MODELS, known_model
from planning.kv_cache import (
    KvFormat,
    attention_pairs,
    bytes_per_token,
    device_share,
    load_bytes,
    read_bytes,
    sequence_bytes,
)

LLAMA, GEMMA, GPT_OSS = (
    known_model(name) for name in ("llama-3.1-70b", "gemma-3-27b", "gpt-oss-120b")
)
TOKENS = st.integers(0, 200_000)


def test_llama_3_1_70b_takes_320_kib_a_token_in_16_bits() -> None:
    assert bytes_per_token(LLAMA, KvFormat()) == 327_680 == 320 * 1024


@pytest.mark.parametrize(
    ("name", "num_bytes"),
    [
        ("llama-3.1-8b", 131_072),
        ("llama-2-7b", 524_288),  # as many KV heads as heads
        ("qwen2.5-0.5b", 12_288),
        ("mistral-7b", 131_072),
        ("smollm2-135m", 23_040),
        ("gpt-oss-120b", 73_728),
    ],
)
def test_a_token_takes_two_numbers_for_each_layer_kv_head_and_dimension(
    name: str, num_bytes: int
) -> None:
    assert bytes_per_token(known_model(name), KvFormat()) == num_bytes


def test_half_the_bits_are_half_the_bytes() -> None:
    assert bytes_per_token(LLAMA, KvFormat(8)) == 163_840


def test_a_layer_with_a_window_reads_its_window_only() -> None:
    layer = 2 * 16 * 128 * 2
    in_full, in_window = GEMMA.windows.count(None), GEMMA.windows.count(1024)
    assert (in_full, in_window) == (10, 52)
    assert read_bytes(GEMMA, KvFormat(), 10_000) == layer * (10 * 10_000 + 52 * 1024)


def test_pages_behind_windows_are_kept_unless_they_are_dropped() -> None:
    kept, dropped = KvFormat(), KvFormat(drops_windows=True)
    assert sequence_bytes(GPT_OSS, kept, 1000) == 1000 * 73_728
    assert sequence_bytes(GPT_OSS, dropped, 1000) == 73_728 * (1000 + 128) / 2


def test_a_shared_prefix_is_kept_once() -> None:
    each = 327_680 * 2500
    apart = load_bytes(LLAMA, KvFormat(), users=100, tokens_each=2500, shared=0)
    shared = load_bytes(LLAMA, KvFormat(), users=100, tokens_each=2500, shared=1500)
    assert apart == 100 * each
    assert shared == 327_680 * (1500 + 100 * 1000)


def test_a_token_attends_to_itself_and_all_before_it() -> None:
    assert attention_pairs(LLAMA, new=3, cached=10) == 80 * (11 + 12 + 13)


@pytest.mark.parametrize(("new", "cached"), [(3, 0), (200, 0), (200, 100), (50, 1000), (1, 127)])
def test_pairs_are_those_counted_one_by_one(new: int, cached: int) -> None:
    counted = sum(
        min(position, window or position)
        for window in GPT_OSS.windows
        for position in range(cached + 1, cached + new + 1)
    )
    assert attention_pairs(GPT_OSS, new=new, cached=cached) == counted


def test_devices_keep_whole_kv_heads() -> None:
    assert [device_share(LLAMA, n) for n in (1, 2, 8, 16)] == [1, 0.5, 0.125, 0.125]


def test_impossible_bits_are_refused() -> None:
    with pytest.raises(PlanError, match="KV of 64 bits"):
        KvFormat(64).check()


@settings(derandomize=True, max_examples=60, deadline=None)
@given(
    name=st.sampled_from(sorted(KNOWN_MODELS)),
    users=st.integers(1, 1000),
    more=st.integers(0, 1000),
    tokens=TOKENS,
    shared=TOKENS,
    longer=TOKENS,
    drops=st.booleans(),
)
def test_more_users_never_take_less_and_sharing_never_more(
    name: str, users: int, more: int, tokens: int, shared: int, longer: int, drops: bool
) -> None:
    model, kv = known_model(name), KvFormat(drops_windows=drops)

    def taken(users: int, shared: int) -> float:
        return load_bytes(model, kv, users=users, tokens_each=tokens, shared=shared)

    assert taken(users + more, shared) >= taken(users, shared)
    assert taken(users, shared) <= taken(users, 0)
    assert taken(users, shared + longer) <= taken(users, shared)
    assert sequence_bytes(model, kv, tokens) <= sequence_bytes(model, KvFormat(), tokens)
