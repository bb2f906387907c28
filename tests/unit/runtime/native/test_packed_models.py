"""Every part of every architecture's weights is packed where the native step looks for it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import gguf
import pytest
import torch

from runtime.decoder_weights import DecoderWeights, load_decoder_weights
from runtime.model_facts import ModelSource
from runtime.model_source import open_model
from runtime.native.packed_weights import load_packed_weights
from runtime.native.reference import reference_weights
from tests.gguf_export import export_gguf
from tests.tiny_architectures import CASES, Case, make_model, save_folder

# Half a step of 8 bits between a block's least and greatest weight is 1/255 of its greatest
# magnitude; float16 keeps the step and the least weight to 2^-11.
MAX_ERROR_OF_QUANTIZED = 1 / 255 + 3 * 2**-11
MAX_ERROR_OF_EXACT = 3 * 2**-11
STORAGES = (gguf.GGMLQuantizationType.Q4_0, gguf.GGMLQuantizationType.Q8_0)
# K of every matrix a multiple of a block's 32.
WHOLE_BLOCKS = {"hidden_size": 64, "intermediate_size": 96}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def gguf_cases() -> Iterator[Case]:
    for case in CASES:
        if case.in_gguf and case.name not in (
            "phi3 short",
            "phi3 long",
        ):  # factors of 12 wide heads
            changes = case.changes | WHOLE_BLOCKS
            if "moe_intermediate_size" in changes:
                changes["moe_intermediate_size"] = 32
            yield replace(case, changes=changes)


def matrices_of(weights: DecoderWeights) -> Iterator[tuple[str, torch.Tensor]]:
    yield "embedding", weights.embedding
    yield "output", weights.output.weight
    for index, layer in enumerate(weights.layers):
        yield f"{index} qkv", layer.qkv.weight
        yield f"{index} attention output", layer.attention_output.weight
        for number, ffn in enumerate(layer.ffns):
            yield f"{index} {number} gate_up", ffn.gate_up.weight
            yield f"{index} {number} down", ffn.down.weight


def vectors_of(weights: DecoderWeights) -> Iterator[tuple[str, torch.Tensor | None]]:
    """And routers, which are not quantized either."""
    yield "final norm", weights.final_norm
    for index, layer in enumerate(weights.layers):
        yield f"{index} attention norm", layer.attention_norm
        yield f"{index} qkv bias", layer.qkv_bias
        yield f"{index} attention output bias", layer.attention_output_bias
        yield f"{index} q norm", layer.q_norm
        yield f"{index} k norm", layer.k_norm
        yield f"{index} post attention norm", layer.post_attention_norm
        yield f"{index} ffn norm", layer.ffn_norm
        yield f"{index} post ffn norm", layer.post_ffn_norm
        yield f"{index} router", None if layer.router is None else layer.router.weight


def check(source: ModelSource, *, max_error: float) -> None:
    expected = load_decoder_weights(source, dtype=torch.float32, device=torch.device("cpu"))
    found = reference_weights(load_packed_weights(source), source.spec)
    for (name, ours), (_, theirs) in zip(matrices_of(found), matrices_of(expected), strict=True):
        assert ours.shape == theirs.shape, name
        assert (ours - theirs).abs().max() <= max_error * theirs.abs().max(), name
    for (name, our), (_, their) in zip(vectors_of(found), vectors_of(expected), strict=True):
        assert (our is None) == (their is None), name
        assert our is None or their is None or torch.equal(our, their), name


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_all_weights_of_a_folder_are_packed(case: Case, tmp_path: Path) -> None:
    source = open_model(save_folder(make_model(case), tmp_path / "model"))
    check(source, max_error=MAX_ERROR_OF_QUANTIZED)


@pytest.mark.parametrize("storage", STORAGES, ids=lambda storage: storage.name)
@pytest.mark.parametrize("case", list(gguf_cases()), ids=lambda case: case.name)
def test_blocks_of_a_gguf_file_are_packed_as_they_are(
    case: Case, storage: gguf.GGMLQuantizationType, tmp_path: Path
) -> None:
    source = open_model(export_gguf(make_model(case), tmp_path / "m.gguf", storage=storage))
    check(source, max_error=MAX_ERROR_OF_EXACT)


def test_all_cases_together_have_every_part(tmp_path: Path) -> None:
    """Else the tests above would prove less than they say."""
    present: set[str] = set()
    for case in CASES:
        source = open_model(save_folder(make_model(case), tmp_path / case.name))
        weights = load_decoder_weights(source, dtype=torch.float32, device=torch.device("cpu"))
        present |= {name for name, vector in vectors_of(weights) if vector is not None}
        present |= {name for name, _ in matrices_of(weights)}
    names = {name.lstrip("0123456789 ") for name in present}
    assert names == {
        "embedding", "output", "qkv", "attention output", "gate_up", "down", "final norm",
        "attention norm", "qkv bias", "attention output bias", "q norm", "k norm",
        "post attention norm", "ffn norm", "post ffn norm", "router",
    }  # fmt: skip
