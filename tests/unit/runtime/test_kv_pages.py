"""Memory of pages, and writes to their slots."""

from dataclasses import replace

import torch

from runtime.decoder_spec import DecoderSpec, LayerSpec, RotarySpec
from runtime.kv_pages import KvPages, page_bytes

SPEC = DecoderSpec(
    hidden_size=32,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    ffn_size=8,
    vocab_size=8,
    max_position=64,
    norm_eps=1e-5,
    attention_scale=0.5,
    tied_embeddings=True,
    layers=(LayerSpec(RotarySpec((1.0,) * 4)),),
)


def test_page_bytes_are_keys_and_values_of_all_layers() -> None:
    assert page_bytes(SPEC, page_size=16, dtype=torch.bfloat16) == 2 * 1 * 2 * 8 * 16 * 2
    three = replace(SPEC, layers=SPEC.layers * 3)
    assert page_bytes(three, page_size=4, dtype=torch.float32) == 2 * 3 * 2 * 8 * 4 * 4


def test_what_is_written_to_slots_is_read_by_pages() -> None:
    pages = KvPages(SPEC, num_pages=3, page_size=4, dtype=torch.float32, device=torch.device("cpu"))
    k, v = torch.randn(2, 2, 8), torch.randn(2, 2, 8)
    pages.write(0, torch.tensor([6, 11]), k=k, v=v)
    keys, values = pages.read(0, torch.tensor([2, 1]))
    assert keys.shape == (2, 4, 2, 8)
    assert torch.equal(keys[0, 3], k[1])
    assert torch.equal(values[1, 2], v[0])
    assert int((keys != 0).any(-1).sum()) == 2 * 2
