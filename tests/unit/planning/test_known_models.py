"""The table of models against the numbers that are published with them."""

import pytest

from planning.errors import PlanError
from planning.known_models import KNOWN_MODELS, known_model
from planning.model_facts import DecoderSizes, with_total_params

# Parameters as the hub counts them in the safetensors files of each model; of Gemma 3 without the
# part that reads images.
PUBLISHED_PARAMS = {
    "smollm2-135m": 134_515_008,
    "llama-2-7b": 6_738_415_616,
    "llama-2-70b": 68_976_648_192,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.3-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-0.6b": 596_049_920,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "mistral-7b": 7_248_023_552,
    "mixtral-8x7b": 46_702_792_704,
    "gemma-3-27b": 27_009_346_304,
    "phi-4": 14_659_507_200,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
}


@pytest.mark.parametrize("name", sorted(KNOWN_MODELS))
def test_the_weights_counted_are_those_published(name: str) -> None:
    assert known_model(name).total_params == PUBLISHED_PARAMS[name]


@pytest.mark.parametrize(
    ("name", "billions"),
    [("gpt-oss-120b", 5.13), ("gpt-oss-20b", 3.61), ("mixtral-8x7b", 12.75)],
)
def test_a_token_meets_the_weights_of_its_experts_only(name: str, billions: float) -> None:
    assert known_model(name).active_params / 1e9 == pytest.approx(billions, abs=0.01)


def test_every_model_has_a_source() -> None:
    for name in KNOWN_MODELS:
        assert known_model(name).source.startswith("https://huggingface.co/")


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(PlanError, match=r"'llama-9' is no known model; known: .*llama-3\.1-8b"):
        known_model("llama-9")


LLAMA_8B = DecoderSizes(
    hidden_size=4096,
    num_layers=32,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    ffn_size=0,
    vocab_size=128_256,
    max_context=8192,
)


def test_of_a_number_of_parameters_the_layers_have_what_the_embedding_leaves() -> None:
    facts = with_total_params(LLAMA_8B, 8_030_261_248, name="mine")
    assert facts.dense_params == known_model("llama-3.1-8b").dense_params
    assert facts.total_params == 8_030_261_248


def test_an_embedding_larger_than_the_model_is_refused() -> None:
    with pytest.raises(PlanError, match="leaves no weights for the layers"):
        with_total_params(LLAMA_8B, 1_000_000_000, name="mine")


def test_heads_that_cannot_share_kv_heads_are_refused() -> None:
    sizes = DecoderSizes(64, 2, 9, 2, 16, 128, 64, 128)
    with pytest.raises(PlanError, match="9 heads cannot share 2 KV heads"):
        sizes.facts("mine", "test")
