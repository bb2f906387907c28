"""The product's greedy tokens are those of `transformers`, with the same log-probabilities.

The reference gets the same weights by gguf.dequantize, in float32 (tests/reference_model.py). It
is run once a prompt, over prompt + our 64 tokens, not token by token: if at every place its argmax,
given our tokens so far, is our next token, then its own greedy output is ours, by induction from
the first place. A place where its two best logits are closer than 1e-4 may go either way; it is
counted, and what follows is still compared, as the reference sees our token there.
"""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer

from runtime.batch import SampledToken
from runtime.config import RuntimeConfig
from runtime.model_runner import load_executor
from runtime.model_source import open_model
from tests.greedy_driver import drive_greedily
from tests.model_file import ROOT, default_model_path, needs_model
from tests.reference_model import load_reference_model

NUM_TOKENS = 64
CHUNK_LEN = 160
TIE = 1e-4
MAX_TIE_SHARE = 0.01
MAX_LOGPROB_ERROR = 1e-3

PROMPT_LENS = (5, 6, 8, 11, 15, 16, 17, 24, 31, 32, 33, 47, 64, 90, 128, 160, 161, 255, 400, 600)
TEXTS = (
    "The capital of France is Paris, and the capital of Japan is Tokyo. The capital of Italy",
    "def fibonacci(n: int) -> int:\n    if n < 2:\n        return n\n    return fibonacci(n - 1)",
    "<|im_start|>user\nWhat is 17 plus 25? Explain.<|im_end|>\n<|im_start|>assistant\n",
    "Once upon a time, in a small village by the sea, there lived an old woman who",
    "Die Katze sitzt auf dem Tisch. Le chat est sur la table. El gato está en la mesa. 猫は",
    '{"name": "Ada Lovelace", "born": 1815, "known_for": ["mathematics", "computing"], "',
    "SELECT name, COUNT(*) FROM orders WHERE total > 100 GROUP BY name HAVING",
)


@dataclass(frozen=True)
class Comparison:
    """What the reference says about one prompt's places: [NUM_TOKENS] each."""

    best: torch.Tensor
    gap: torch.Tensor
    logprob_of_ours: torch.Tensor


def make_prompts(tokenizer: Tokenizer) -> list[list[int]]:
    """One prompt of each length: a short text, continued with the licence from some place on."""
    licence = tokenizer.encode((ROOT / "LICENSE").read_text()).ids
    prompts = []
    for index, length in enumerate(PROMPT_LENS):
        text = tokenizer.encode(TEXTS[index % len(TEXTS)]).ids
        prompts.append((text + licence[index * 50 :])[:length])
    return prompts


def compare(reference: Any, prompt: list[int], ours: list[int]) -> Comparison:
    with torch.inference_mode():
        logits = reference(
            torch.tensor([prompt + ours[:-1]]), logits_to_keep=len(ours), use_cache=False
        ).logits[0]
    best_two = logits.topk(2).values
    logprobs = torch.log_softmax(logits, dim=-1)
    return Comparison(
        best=logits.argmax(-1),
        gap=best_two[:, 0] - best_two[:, 1],
        logprob_of_ours=logprobs.gather(1, torch.tensor(ours)[:, None])[:, 0],
    )


def token_ids(sampled: list[SampledToken]) -> list[int]:
    return [token.token_id for token in sampled if token.token_id is not None]


def logprobs(sampled: list[SampledToken]) -> torch.Tensor:
    return torch.tensor([token.logprob.logprob for token in sampled if token.logprob is not None])


@needs_model
@pytest.mark.timeout(300)  # 40 s of one core, several times that on a busy machine
def test_greedy_tokens_and_logprobs_are_those_of_transformers() -> None:
    source = open_model(default_model_path())
    prompts = make_prompts(Tokenizer.from_str(source.text.tokenizer_json))
    assert [len(prompt) for prompt in prompts] == list(PROMPT_LENS)
    loaded = load_executor(source, RuntimeConfig(model="", dtype="float32", num_threads=1))
    ours = drive_greedily(loaded.executor, prompts, num_tokens=NUM_TOKENS, chunk_len=CHUNK_LEN)
    reference = load_reference_model(default_model_path())
    num_ties = 0
    for prompt, sampled in zip(prompts, ours, strict=True):
        ids = token_ids(sampled)
        expected = compare(reference, prompt, ids)
        is_tie = expected.gap < TIE
        differs = expected.best != torch.tensor(ids)
        assert not (differs & ~is_tie).any(), f"prompt of {len(prompt)}: {differs.nonzero()}"
        error = (expected.logprob_of_ours - logprobs(sampled)).abs().max()
        assert error < MAX_LOGPROB_ERROR, f"prompt of {len(prompt)}: off by {error}"
        num_ties += int(is_tie.sum())
    assert num_ties < MAX_TIE_SHARE * NUM_TOKENS * len(prompts)
