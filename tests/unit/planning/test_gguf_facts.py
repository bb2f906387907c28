"""Sizes and bytes from a GGUF header."""

import pytest

from planning.errors import PlanError
from planning.gguf_facts import StoredTensor, model_of_gguf, packed_bytes
from planning.model_facts import ModelFacts

METADATA: dict[str, object] = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.embedding_length": 64,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.feed_forward_length": 128,
    "llama.context_length": 512,
}


def tensor(name: str, kind: str, *shape: int) -> StoredTensor:
    count = 1
    for size in shape:
        count *= size
    per_weight = {"Q4_0": 18 / 32, "Q8_0": 34 / 32, "Q6_K": 210 / 256, "F32": 4.0}[kind]
    return StoredTensor(name, kind, shape, int(count * per_weight))


def tensors(v_kind: str = "Q4_0") -> list[StoredTensor]:
    found = [tensor("token_embd.weight", "Q8_0", 256, 64), tensor("output_norm.weight", "F32", 64)]
    for i in range(2):
        found += [
            tensor(f"blk.{i}.attn_q.weight", "Q4_0", 64, 64),
            tensor(f"blk.{i}.attn_k.weight", "Q4_0", 32, 64),
            tensor(f"blk.{i}.attn_v.weight", v_kind, 32, 64),
            tensor(f"blk.{i}.ffn_down.weight", "Q4_0", 64, 128),
        ]
    return found


def facts(metadata: dict[str, object] | None = None, *more: StoredTensor) -> ModelFacts:
    return model_of_gguf(
        METADATA | (metadata or {}), [*tensors(), *more], name="a.gguf", source="test"
    )


def test_sizes_and_weights_are_those_of_the_header() -> None:
    found = facts()
    assert (found.num_layers, found.num_kv_heads, found.head_dim) == (2, 2, 16)
    assert (found.vocab_size, found.max_context) == (256, 512)
    assert found.embedding_params == 256 * 64
    assert found.output_params == 0
    assert found.dense_params == 64 + 2 * (64 * 64 + 2 * 32 * 64 + 64 * 128)


def test_bytes_are_those_of_the_tensors() -> None:
    stored = facts(None, tensor("output.weight", "Q6_K", 256, 64)).stored
    assert stored is not None
    assert stored.embedding == 256 * 64 * 34 / 32
    assert stored.output == 256 * 64 * 210 / 256
    assert stored.dense == 64 * 4 + 2 * (64 * 64 + 2 * 32 * 64 + 64 * 128) * 18 / 32
    assert stored.bits == 4


def test_the_native_step_keeps_four_bits_in_five_and_others_in_nine() -> None:
    packed = packed_bytes(tensors())
    assert packed.dense == 64 * 4 + 2 * (64 * 64 + 2 * 32 * 64 + 64 * 128) * 5 / 8
    assert packed.embedding == 256 * 64 * 9 / 8


def test_matrices_that_are_packed_together_have_the_bits_of_the_widest() -> None:
    qkv = 64 * 64 + 2 * 32 * 64
    found = tensors(v_kind="Q6_K")
    for order in (found, found[::-1]):
        assert packed_bytes(order).dense == 64 * 4 + 2 * (qkv * 9 / 8 + 64 * 128 * 5 / 8)


def test_experts_are_counted_apart() -> None:
    expert = tensor("blk.1.ffn_up_exps.weight", "Q4_0", 8, 32, 64)
    metadata: dict[str, object] = {"llama.expert_count": 8, "llama.expert_used_count": 2}
    found = facts(metadata, expert)
    assert found.expert is not None
    assert found.expert.params_each == 32 * 64
    assert found.expert.num_layers == 1
    assert found.stored is not None
    assert found.stored.experts == 8 * 32 * 64 * 18 / 32
    assert found.layer_params_per_token == found.dense_params + 2 * 32 * 64


@pytest.mark.parametrize(
    ("metadata", "windows"),
    [
        ({}, (None, None)),
        ({"llama.attention.sliding_window": 128}, (128, 128)),
        (
            {
                "llama.attention.sliding_window": 128,
                "llama.attention.sliding_window_pattern": [True, False],
            },
            (128, None),
        ),
        (
            {"llama.attention.sliding_window": 9, "llama.attention.sliding_window_pattern": 2},
            (9, None),
        ),
    ],
)
def test_windows_are_read(metadata: dict[str, object], windows: tuple[int | None, ...]) -> None:
    assert facts(metadata).windows == windows


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"llama.attention.kv_lora_rank": 512}, "MLA"),
        ({"llama.ssm.state_size": 16}, "state-space layers"),
        ({"llama.block_count": None}, "llama.block_count must be one whole number, it is missing"),
        ({"llama.attention.head_count_kv": [1, 2]}, "it is a list"),
        ({"llama.attention.head_count": 0}, "number of heads must be at least 1"),
        ({"llama.embedding_length": 0}, "hidden size must be at least 1"),
        ({"llama.block_count": 1 << 60}, "number of layers must be from 1 to 10,000"),
    ],
)
def test_what_is_not_covered_is_said(metadata: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        facts(metadata)


def test_a_file_without_an_embedding_is_refused() -> None:
    with pytest.raises(PlanError, match="no tensor 'token_embd.weight'"):
        model_of_gguf(METADATA, tensors()[1:], name="a.gguf", source="test")
