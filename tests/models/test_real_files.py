"""Real files: their vocabularies split text as transformers' reading of them does, their tensors
have the bits of the gguf package. Run by `make test-models`, which fetches the files."""

import random
import re
from typing import Any

import gguf
import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from gateway.detokenizer import Detokenizer
from gateway.tokenizer import Tokenizer as GatewayTokenizer
from runtime.gguf_file import GgufFile
from runtime.model_source import open_model
from runtime.weights import GgufWeights
from tests.fetch_models import GEMMA3_270M, QWEN2_CODER, REAL_MODELS, RealModel
from tests.model_file import ROOT

pytestmark = [pytest.mark.models, pytest.mark.timeout(300)]

NUM_ROWS = 64
TEXTS = (
    "  leading and  double  spaces\n\n\ttabs and a no-break\u00a0space",
    "def f(x):\n    return x**2 # ünïcödé 日本語 🤖🏽 \u200b zero width",
    "<b>bold</b> <table>[multimodal] I'll've 12345 + 3.14\r\n\r\n\x00",
    "<start_of_turn>user\nHi<end_of_turn>\n<|im_start|>system\nHi<|im_end|>\n<tool_call>",
    "நாள் שלום مرحبا ไทย 한국어 \U00013000",
)


@pytest.fixture(params=REAL_MODELS, ids=lambda model: str(model.file_name))
def model(request: pytest.FixtureRequest) -> RealModel:
    assert isinstance(request.param, RealModel)
    assert request.param.path.is_file(), "`make test-models` fetches the model"
    return request.param


def texts() -> list[str]:
    """The texts above, the licence, and random characters.

    Not in them, as transformers' reading of a GGUF file is no judge there: characters that are
    not composed, which Qwen's own tokenizer.json composes; more spaces in a row than Gemma's
    longest token for them, which SentencePiece takes from the left, 31 by 31.
    """
    rng = random.Random(0)
    letters = "ab \n\t.,'\"<>éß日本🤖0123456789{}[]:_-"
    noise = ["".join(rng.choice(letters) for _ in range(200)) for _ in range(20)]
    licence = re.sub(" {32,}", " ", (ROOT / "LICENSE").read_text())
    return [*TEXTS, licence, *noise]


def reference_tokenizer(model: RealModel) -> Any:
    return AutoTokenizer.from_pretrained(str(model.path.parent), gguf_file=model.file_name)


@pytest.mark.filterwarnings("default")
def test_text_is_split_as_transformers_does(model: RealModel) -> None:
    ours = Tokenizer.from_str(open_model(model.path).text.tokenizer_json)
    theirs = reference_tokenizer(model)
    for text in texts():
        ids = ours.encode(text, add_special_tokens=False).ids
        assert ids == theirs(text, add_special_tokens=False)["input_ids"]


def test_text_comes_back_token_by_token(model: RealModel) -> None:
    tokenizer = GatewayTokenizer(open_model(model.path).text)
    for text in texts()[5:]:  # without special tokens
        detokenizer = Detokenizer(tokenizer)
        ids = tokenizer.encode(text, add_special=False)
        assert "".join(map(detokenizer.feed, ids)) + detokenizer.flush() == text


def test_the_first_tensors_rows_have_the_references_bits(model: RealModel) -> None:
    file = GgufFile.open(model.path)
    reader = GgufWeights(file)
    tensors = gguf.GGUFReader(str(model.path)).tensors
    assert {tensor.name for tensor in tensors} == reader.shapes.keys()
    for tensor in tensors:
        ours = reader.read_rows(tensor.name, 0, NUM_ROWS)
        theirs = gguf.dequantize(tensor.data[:NUM_ROWS], tensor.tensor_type)
        assert torch.equal(ours.float(), torch.from_numpy(theirs.copy()))


@pytest.mark.parametrize(
    ("model", "ends", "first"),
    [
        (GEMMA3_270M, {"<eos>", "<end_of_turn>"}, "<bos>"),
        (QWEN2_CODER, {"<|im_end|>", "<|endoftext|>"}, None),
    ],
    ids=["gemma3", "qwen2"],
)
def test_texts_begin_and_end_with_the_models_own_tokens(
    model: RealModel, ends: set[str], first: str | None
) -> None:
    text = open_model(model.path).text
    tokenizer = Tokenizer.from_str(text.tokenizer_json)
    assert {tokenizer.id_to_token(token_id) for token_id in text.eos_token_ids} == ends
    begin = GatewayTokenizer(text).encode("a", add_special=True)[0]
    assert (tokenizer.id_to_token(begin) if text.add_bos else None) == first
