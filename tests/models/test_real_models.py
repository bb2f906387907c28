"""Real files of two architectures give the tokens and log-probabilities of transformers.

Run by `make test-models`, which fetches the files. The judge is that of
tests/integration/test_reference_tokens.py: one forward of the reference over prompt and answer.
"""

import gc
from dataclasses import dataclass

import pytest
import torch
from tokenizers import Tokenizer

from runtime.batch import SampledToken
from runtime.config import RuntimeConfig
from runtime.model_runner import load_executor
from runtime.model_source import open_model
from runtime.text_assets import TextAssets
from tests.fetch_models import GEMMA3_270M, QWEN2_CODER, RealModel
from tests.greedy_driver import drive_greedily
from tests.integration.test_reference_tokens import TEXTS, TIE, compare, logprobs, token_ids
from tests.model_file import ROOT
from tests.reference_model import load_reference_model

pytestmark = pytest.mark.models

NUM_TOKENS = 32
CHUNK_LEN = 96
MAX_LOGPROB_ERROR = 1e-3


@dataclass(frozen=True)
class Subject:
    """A file, how long its prompts are, and a text with the word that must follow it."""

    model: RealModel
    prompt_lens: tuple[int, ...]
    question: str
    answer: str


SUBJECTS = (
    # The window of gemma3 is 512 tokens: one prompt is longer, one grows beyond it.
    Subject(
        GEMMA3_270M,
        (6, 40, 500, 700),
        "The capital of Japan is Tokyo. The capital of France is",
        "Paris",
    ),
    Subject(QWEN2_CODER, (6, 40, 170), "def is_even(n):\n    return n %", "2"),
)


@pytest.fixture(params=SUBJECTS, ids=lambda subject: str(subject.model.file_name))
def subject(request: pytest.FixtureRequest) -> Subject:
    assert isinstance(request.param, Subject)
    assert request.param.model.path.is_file(), "`make test-models` fetches the model"
    return request.param


def make_prompts(tokenizer: Tokenizer, subject: Subject, text: TextAssets) -> list[list[int]]:
    """The question, then texts of each length, continued with the licence."""
    start = [text.bos_token_id] if text.add_bos and text.bos_token_id is not None else []
    texts = [f"{beginning}\n{(ROOT / 'LICENSE').read_text()}" for beginning in TEXTS]
    prompts = [start + tokenizer.encode(subject.question, add_special_tokens=False).ids]
    for length, one in zip(subject.prompt_lens, texts, strict=False):
        prompts.append((start + tokenizer.encode(one, add_special_tokens=False).ids)[:length])
    return prompts


def answers(subject: Subject) -> tuple[list[list[int]], list[list[SampledToken]], str]:
    """Prompts, what the product says to each in one batch, and its text to the question."""
    source = open_model(subject.model.path)
    tokenizer = Tokenizer.from_str(source.text.tokenizer_json)
    prompts = make_prompts(tokenizer, subject, source.text)
    loaded = load_executor(source, RuntimeConfig(model="", dtype="float32", device="cpu"))
    sampled = drive_greedily(loaded.executor, prompts, num_tokens=NUM_TOKENS, chunk_len=CHUNK_LEN)
    return prompts, sampled, str(tokenizer.decode(token_ids(sampled[0])))


@pytest.mark.timeout(900)  # 2 minutes of two cores, and they may be busy
def test_tokens_and_logprobs_are_those_of_transformers(subject: Subject) -> None:
    prompts, ours, text = answers(subject)
    assert text.split()[0].startswith(subject.answer)
    gc.collect()  # the product's weights, before the reference's
    reference = load_reference_model(subject.model.path)
    num_ties = 0
    for prompt, sampled in zip(prompts, ours, strict=True):
        ids = token_ids(sampled)
        assert len(ids) == NUM_TOKENS
        expected = compare(reference, prompt, ids)
        is_tie = expected.gap < TIE
        differs = expected.best != torch.tensor(ids)
        assert not (differs & ~is_tie).any(), f"prompt of {len(prompt)}: {differs.nonzero()}"
        error = (expected.logprob_of_ours - logprobs(sampled)).abs().max()
        assert error < MAX_LOGPROB_ERROR, f"prompt of {len(prompt)}: off by {error}"
        num_ties += int(is_tie.sum())
    assert num_ties <= 1
