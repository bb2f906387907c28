"""Parts of tensors become the matrices that the decoder wants, in its order of rows."""

from dataclasses import dataclass, field

import pytest
import torch

from runtime import decoder_weights
from runtime.decoder_spec import DecoderSpec, LayerSpec, RotarySpec
from runtime.decoder_weights import check_tensors, load_decoder_weights
from runtime.errors import ModelError
from runtime.model_source import open_model
from runtime.models.weight_names import GGUF_NAMING, map_weights
from runtime.weight_map import MatrixPart, VectorPart
from runtime.weight_parts import read_part, read_vector, undo_rotary_interleave
from tests.tiny_model import write_tiny_model

CPU = torch.device("cpu")


@dataclass
class FakeReader:
    """Tensors in memory; notes how many rows were asked for at once."""

    tensors: dict[str, torch.Tensor]
    asked: list[int] = field(default_factory=list)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(tensor.shape) for name, tensor in self.tensors.items()}

    def read(self, name: str) -> torch.Tensor:
        return self.tensors[name]

    def read_rows(self, name: str, start: int, stop: int) -> torch.Tensor:
        self.asked.append(stop - start)
        return self.tensors[name][start:stop]

    def stored(self, name: str) -> None:
        """No blocks."""


def test_an_expert_is_one_of_a_stack_and_may_be_some_of_its_rows() -> None:
    stack = torch.arange(24.0).view(3, 4, 2)
    reader = FakeReader({"experts": stack})
    assert torch.equal(read_part(reader, MatrixPart("experts", expert=1)), stack[1])
    some = MatrixPart("experts", expert=2, rows=(1, 3))
    assert torch.equal(read_part(reader, some), stack[2, 1:3])
    assert reader.asked == [1, 1]


def test_a_vector_is_stacked_and_its_offset_added() -> None:
    reader = FakeReader({"a": torch.tensor([0.5]).half(), "b": torch.tensor([1.0, 2.0])})
    vector = read_vector(reader, (VectorPart("a", offset=1.0), VectorPart("b", rows=(1, 2))))
    assert torch.equal(vector, torch.tensor([1.5, 2.0]))


def test_pairs_that_lie_side_by_side_move_to_the_halves_of_their_head() -> None:
    rows = torch.tensor([0, 2, 1, 3, 10, 12, 11, 13])
    expected = torch.tensor([0, 1, 2, 3, 10, 11, 12, 13])
    assert torch.equal(undo_rotary_interleave(rows, head_dim=4), expected)
    columns = rows[:, None].expand(-1, 3)
    assert torch.equal(undo_rotary_interleave(columns, head_dim=4), expected[:, None].expand(-1, 3))


def test_rows_of_a_head_that_turns_in_part_are_moved_to_the_decoders_pairs() -> None:
    """Heads of 8, of which the pairs (0, 2) and (1, 3) turn; the rest passes."""
    rotary = RotarySpec((1.0, 0.5, 0.0, 0.0))
    spec = DecoderSpec(
        hidden_size=2,
        num_heads=2,
        num_kv_heads=1,
        head_dim=8,
        ffn_size=2,
        vocab_size=2,
        max_position=8,
        norm_eps=1e-5,
        attention_scale=1.0,
        tied_embeddings=True,
        layers=(LayerSpec(rotary),),
    )
    naming = GGUF_NAMING.with_layer(qkv=("attn_qkv",))
    fused = torch.arange(32.0)[:, None].expand(-1, 2)
    reader = FakeReader({"blk.0.attn_qkv.weight": fused})
    parts = map_weights(spec, naming).layers[0].qkv
    rows = torch.cat([read_part(reader, part) for part in parts])[:, 0].tolist()
    head = [0, 1, 4, 5, 2, 3, 6, 7]
    expected = [8 * number + row for number in range(3) for row in head]
    assert rows == [*expected, *range(24, 32)]


def test_matrices_are_read_in_blocks(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = open_model(write_tiny_model(tmp_path_factory.mktemp("model")))
    whole = load_decoder_weights(source, dtype=torch.float32, device=CPU)
    monkeypatch.setattr(decoder_weights, "_BLOCK_ELEMENTS", 7 * 64)  # 7 rows of 64, some 3 of 128
    parts = load_decoder_weights(source, dtype=torch.float32, device=CPU)
    assert torch.equal(whole.embedding, parts.embedding)
    for one, other in zip(whole.layers, parts.layers, strict=True):
        assert torch.equal(one.qkv.weight, other.qkv.weight)
        assert torch.equal(one.ffns[0].down.weight, other.ffns[0].down.weight)


def test_no_block_is_larger_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder_weights, "_BLOCK_ELEMENTS", 10)
    blocks = list(decoder_weights._blocks(MatrixPart("m", rows=(2, 9)), 7, 4))
    assert [block.rows for block in blocks] == [(2, 4), (4, 6), (6, 8), (8, 9)]


def test_what_may_be_there_is_neither_missed_nor_left_over() -> None:
    spec_map = map_weights(_tied_spec(), GGUF_NAMING, ignored=("rope_freqs.weight",))
    exact = dict(spec_map.shapes)
    more = exact | {"output.weight": (9, 9), "rope_freqs.weight": (1,)}
    check_tensors(exact, spec_map, architecture="llama")
    check_tensors(more, spec_map, architecture="llama")
    with pytest.raises(ModelError, match="'extra' is not part of a plain llama model"):
        check_tensors(exact | {"extra": (1,)}, spec_map, architecture="llama")


def _tied_spec() -> DecoderSpec:
    return DecoderSpec(
        hidden_size=4,
        num_heads=2,
        num_kv_heads=1,
        head_dim=2,
        ffn_size=2,
        vocab_size=2,
        max_position=8,
        norm_eps=1e-5,
        attention_scale=1.0,
        tied_embeddings=True,
        layers=(LayerSpec(RotarySpec((1.0,))),),
    )
