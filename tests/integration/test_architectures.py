"""One contract for every architecture: the logits and greedy tokens of transformers, from a folder
and from a GGUF file, cached or not, in chunks or whole."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from runtime.batch import (
    PageId,
    RowKey,
    SamplePlan,
    SampleRow,
    ScheduledBatch,
    ScheduledRow,
)
from runtime.config import RuntimeConfig
from runtime.errors import ModelError
from runtime.messages import Sampling
from runtime.model_runner import LoadedModel, load_executor
from runtime.model_source import open_model
from runtime.worker import engine_info
from tests.engine_harness import EngineDriver, make_submit
from tests.gguf_export import export_gguf
from tests.tiny_architectures import (
    CASES,
    VOCAB_SIZE,
    Case,
    make_model,
    reference_greedy,
    reference_logits,
    save_folder,
)

NUM_TOKENS = 32
PROMPT = [(37 * i + i * i // 3 + 5) % (VOCAB_SIZE - 3) + 3 for i in range(75)]
MAX_ERROR = 1e-3
RAW = Sampling(max_tokens=1, temperature=0.0, num_logprobs=VOCAB_SIZE)
GREEDY = Sampling(max_tokens=NUM_TOKENS, temperature=0.0, ignore_eos=True)


@dataclass(frozen=True)
class Subject:
    """One model of transformers, and the product with the same model from one kind of file."""

    reference: Any
    loaded: LoadedModel
    engine_config: RuntimeConfig
    path: Path

    def engine(self) -> EngineDriver:
        """A fresh engine with an empty cache, at most 23 tokens a step."""
        info = engine_info("engine", open_model(self.path), self.loaded, self.engine_config)
        return EngineDriver(self.loaded.executor, info, config=self.engine_config)


def _subjects() -> Iterator[Any]:
    for case in CASES:
        yield pytest.param((case, "folder"), id=f"{case.name}-folder")
        if case.in_gguf:
            yield pytest.param((case, "gguf"), id=f"{case.name}-gguf")


@pytest.fixture(scope="module")
def references() -> dict[str, Any]:
    return {}


@pytest.fixture(scope="module", params=_subjects())
def subject(
    request: pytest.FixtureRequest,
    references: dict[str, Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Subject:
    case, kind = request.param
    assert isinstance(case, Case)
    model = references.setdefault(case.name, make_model(case))
    folder = tmp_path_factory.mktemp("model")
    path = save_folder(model, folder) if kind == "folder" else export_gguf(model, folder / "m.gguf")
    return Subject(model, *load(path, max_model_len=case.max_model_len), path)


def load(path: Path, *, max_model_len: int = 256) -> tuple[LoadedModel, RuntimeConfig]:
    config = RuntimeConfig(
        model=str(path),
        dtype="float32",
        device="cpu",
        num_threads=1,
        kv_memory_bytes=2**23,
        max_model_len=max_model_len,
        max_step_tokens=23,
    )
    return load_executor(open_model(path), config), config


def logprobs(loaded: LoadedModel, token_ids: list[int]) -> torch.Tensor:
    """One whole forward; the log-probabilities at every place: [tokens, V]."""
    pages = tuple(PageId(page) for page in range(-(-len(token_ids) // loaded.page_size)))
    places = tuple(range(len(token_ids)))
    row = ScheduledRow(RowKey(0), tuple(token_ids), 0, pages, places)
    loaded.executor.forward(ScheduledBatch(step=0, rows=(row,)))
    sampled = loaded.executor.sample(SamplePlan(tuple(SampleRow(RAW, 0, 0) for _ in places)))
    tops = [token.logprob.top for token in sampled if token.logprob is not None]
    return torch.tensor([[value for _, value in sorted(top)] for top in tops])


def test_the_logits_are_those_of_transformers(subject: Subject) -> None:
    expected = reference_logits(subject.reference, PROMPT).log_softmax(-1)
    error = (logprobs(subject.loaded, PROMPT) - expected).abs().max()
    assert error < MAX_ERROR


def test_the_scores_of_a_prompt_are_those_of_transformers(subject: Subject) -> None:
    """In chunks of 23, where all of it is cached."""
    expected = reference_logits(subject.reference, PROMPT).log_softmax(-1)[:-1]
    engine = subject.engine()
    engine.ask(make_submit("first", PROMPT, sampling=GREEDY))
    request = make_submit("scored", PROMPT, max_tokens=0, num_prompt_logprobs=VOCAB_SIZE)
    scores = engine.ask(request).last.prompt_logprobs
    found = torch.tensor([[value for _, value in sorted(score.top)] for score in scores])
    assert (found - expected).abs().max() < MAX_ERROR
    own = torch.tensor([score.logprob for score in scores])
    assert torch.equal(own, found.gather(1, torch.tensor(PROMPT)[1:, None])[:, 0])


def test_the_greedy_tokens_are_those_of_transformers_cached_or_not(subject: Subject) -> None:
    expected = reference_greedy(subject.reference, PROMPT, num_tokens=NUM_TOKENS)
    engine = subject.engine()
    uncached = engine.ask(make_submit("uncached", PROMPT, sampling=GREEDY, use_cache=False))
    cold = engine.ask(make_submit("cold", PROMPT, sampling=GREEDY))
    warm = engine.ask(make_submit("warm", PROMPT, sampling=GREEDY))
    assert uncached.token_ids == expected
    assert cold.token_ids == expected
    assert warm.token_ids == expected
    assert cold.last.usage is not None
    assert cold.last.usage.cached_tokens == 0
    assert warm.last.usage is not None
    assert warm.last.usage.cached_tokens == len(PROMPT) - 1


def test_rows_that_decode_over_a_shared_prefix_get_the_same_tokens(subject: Subject) -> None:
    prompts = [[*PROMPT, 40 + i, *range(50, 50 + 3 * i)] for i in range(3)]
    expected = [reference_greedy(subject.reference, prompt, num_tokens=8) for prompt in prompts]
    engine = subject.engine()
    sampling = Sampling(max_tokens=8, temperature=0.0, ignore_eos=True)
    engine.ask(make_submit("first", prompts[0], sampling=sampling))
    for number, prompt in enumerate(prompts):
        engine.submit(make_submit(str(number), prompt, sampling=sampling))
    engine.run()
    assert [engine.answer(str(number)).token_ids for number in range(3)] == expected


@pytest.mark.parametrize("name", ["mixtral", "qwen3_moe some layers", "gemma3 with images"])
def test_the_names_that_transformers_has_in_memory_are_understood_too(
    name: str, tmp_path: Path
) -> None:
    """Files of newer writers stack the experts, and have another prefix before the text part."""
    model = make_model(next(case for case in CASES if case.name == name))
    save_folder(model, tmp_path)
    (file,) = tmp_path.glob("*.safetensors")
    usual = open_model(tmp_path).weight_map
    state = {key: weight.clone() for key, weight in model.state_dict().items()}
    save_file(state, file, {"format": "pt"})
    assert open_model(tmp_path).weight_map.shapes != usual.shapes
    expected = reference_logits(model, PROMPT).log_softmax(-1)
    assert (logprobs(load(tmp_path)[0], PROMPT) - expected).abs().max() < MAX_ERROR


def test_a_mixtral_file_with_a_tensor_for_each_expert_is_understood_too(tmp_path: Path) -> None:
    model = make_model(next(case for case in CASES if case.name == "mixtral"))
    path = export_gguf(model, tmp_path / "m.gguf", splits_experts=True)
    assert "blk.2.ffn_down.5.weight" in open_model(path).weight_map.shapes
    expected = reference_logits(model, PROMPT).log_softmax(-1)
    assert (logprobs(load(path)[0], PROMPT) - expected).abs().max() < MAX_ERROR


def test_a_missing_expert_is_named(tmp_path: Path) -> None:
    model = make_model(next(case for case in CASES if case.name == "mixtral"))
    save_folder(model, tmp_path)
    (file,) = tmp_path.glob("*.safetensors")
    tensors = load_file(file)
    missing = next(key for key in tensors if "experts.5.w2" in key)
    save_file({key: weight for key, weight in tensors.items() if key != missing}, file)
    with pytest.raises(ModelError, match=f"'{missing}' is missing"):
        load(tmp_path)
