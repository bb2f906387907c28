"""Bytes of weights, and how many of them a step reads."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planning.known_models import KNOWN_MODELS, known_model
from planning.weights import experts_touched, weight_bytes


def test_in_16_bits_every_weight_takes_two_bytes() -> None:
    model = known_model("llama-3.1-70b")
    assert weight_bytes(model, 16).total(model) == 2 * 70_553_706_496


def test_embedding_and_output_stay_in_16_bits_where_layers_have_fewer() -> None:
    model = known_model("llama-3.1-8b")
    table = 128_256 * 4096
    assert weight_bytes(model, 8).total(model) == 8_030_261_248 - 2 * table + 2 * 2 * table


def test_experts_that_come_in_four_bits_keep_them() -> None:
    model = known_model("gpt-oss-120b")
    # The files of openai/gpt-oss-120b take 65.2 GB (its model card: 60.8 GiB).
    assert weight_bytes(model, 16).total(model) / 2**30 == pytest.approx(60.8, rel=0.01)


def test_a_step_reads_all_but_the_embedding() -> None:
    model = known_model("llama-3.1-8b")
    read = weight_bytes(model, 16).read(model, num_tokens=7)
    assert read == 2 * (8_030_261_248 - 128_256 * 4096)


def test_a_tied_embedding_is_read_as_the_output() -> None:
    model = known_model("smollm2-135m")
    assert weight_bytes(model, 16).read(model, num_tokens=1) == 2 * 134_515_008


def test_one_token_touches_the_experts_it_uses_and_many_touch_all() -> None:
    assert experts_touched(8, 2, 1) == pytest.approx(2)
    assert experts_touched(8, 2, 2) == pytest.approx(2 + 2 * 6 / 8)
    assert experts_touched(128, 8, 1000) == pytest.approx(128)


def test_a_mixture_of_experts_reads_more_with_more_rows() -> None:
    model = known_model("mixtral-8x7b")
    weights = weight_bytes(model, 16)
    assert weights.read(model, num_tokens=1) == pytest.approx(2 * model.active_params)
    whole = 2 * (model.total_params - model.embedding_params)
    assert weights.read(model, num_tokens=500) == pytest.approx(whole)


@settings(derandomize=True, max_examples=60, deadline=None)
@given(
    name=st.sampled_from(sorted(KNOWN_MODELS)),
    bits=st.floats(2, 32),
    more=st.floats(0, 16),
    tokens=st.floats(1, 4096),
    further=st.floats(0, 4096),
)
def test_more_bits_or_tokens_never_read_less(
    name: str, bits: float, more: float, tokens: float, further: float
) -> None:
    model = known_model(name)
    weights, wider = weight_bytes(model, bits), weight_bytes(model, bits + more)
    read = weights.read(model, num_tokens=tokens)
    assert wider.read(model, num_tokens=tokens) >= read
    assert weights.read(model, num_tokens=tokens + further) >= read
    assert read <= weights.total(model)
