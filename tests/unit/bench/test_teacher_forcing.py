"""The quality measure against transformers' own log-probabilities of the same tokens."""

from pathlib import Path

import pytest
import torch

from runtime.config import RuntimeConfig
from runtime.model_runner import LoadedModel, load_executor
from runtime.model_source import open_model
from tests.bench.teacher_forcing import StepShape, Window, forced_logprobs, split_windows
from tests.reference_model import load_reference_model
from tests.tiny_gguf import write_tiny_gguf

WINDOWS = [tuple((7 * i + 5 * w) % 61 for i in range(19)) for w in range(3)]


@pytest.fixture(scope="module")
def gguf_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("forcing") / "tiny.gguf")


@pytest.fixture(scope="module")
def loaded(gguf_path: Path) -> LoadedModel:
    config = RuntimeConfig(
        model=str(gguf_path), dtype="float32", device="cpu", num_threads=1, kv_memory_bytes=2**20
    )
    return load_executor(open_model(config.model), config)


def reference_logprobs(path: Path, window: Window) -> list[float]:
    token_ids = torch.tensor([window])
    with torch.inference_mode():
        logprobs = load_reference_model(path)(token_ids).logits[0].log_softmax(-1)
    values: list[float] = logprobs[:-1].gather(1, token_ids[0, 1:, None])[:, 0].tolist()
    return values


@pytest.mark.parametrize("shape", [StepShape("", 1, 1), StepShape("", 5, 2), StepShape("", 99, 3)])
def test_every_token_but_a_windows_first_is_scored_as_transformers_does(
    loaded: LoadedModel, gguf_path: Path, shape: StepShape
) -> None:
    scored = forced_logprobs(
        loaded.executor,
        WINDOWS,
        shape=shape,
        vocab_size=loaded.vocab_size,
        page_size=loaded.page_size,
    )
    expected = [value for window in WINDOWS for value in reference_logprobs(gguf_path, window)]
    assert sorted(scored) == pytest.approx(sorted(expected), abs=1e-4)


def test_windows_are_equal_and_in_order() -> None:
    assert split_windows(range(11), 3) == [(0, 1, 2), (3, 4, 5), (6, 7, 8)]
