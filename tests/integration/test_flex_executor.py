"""The executor for GPUs, on the CPU with recordings that only call: the tokens and logits of the
plain executor, for every architecture."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from runtime.batch import (
    PageId,
    RowKey,
    SampledToken,
    ScheduledBatch,
    ScheduledRow,
    ScoredTokens,
)
from runtime.config import RuntimeConfig
from runtime.decoder_weights import load_decoder_weights
from runtime.flex_attention import Attend, attend_pages
from runtime.flex_executor import build_flex_executor
from runtime.messages import Sampling
from runtime.model_facts import ModelSource
from runtime.model_runner import load_executor
from runtime.model_source import open_model
from runtime.pool_limits import PoolLimits
from runtime.torch_executor import TorchExecutor, build_torch_executor
from runtime.worker import engine_info
from tests.engine_harness import EngineDriver, make_submit
from tests.greedy_driver import drive_greedily
from tests.no_reads import NoReads
from tests.page_lists import attend_listed_pages
from tests.tiny_architectures import CASES, VOCAB_SIZE, Case, make_model, save_folder

NUM_TOKENS = 12
PROMPTS = [
    [(37 * i + i * i // 3 + 5 + 11 * number) % (VOCAB_SIZE - 3) + 3 for i in range(length)]
    for number, length in enumerate((75, 130, 7))
]
CPU = torch.device("cpu")
MAX_ERROR = 1e-3


@dataclass
class CountedCapture:
    """A recording that only calls the function; counts replays."""

    num_replays: int = 0

    def __call__(self, function: Callable[[], Tensor]) -> Callable[[], Tensor]:
        def replay() -> Tensor:
            self.num_replays += 1
            return function()

        return replay


@pytest.fixture(scope="module", params=[pytest.param(case, id=case.name) for case in CASES])
def case(request: pytest.FixtureRequest) -> Case:
    assert isinstance(request.param, Case)
    return request.param


@pytest.fixture(scope="module")
def source(case: Case, tmp_path_factory: pytest.TempPathFactory) -> ModelSource:
    return open_model(save_folder(make_model(case), tmp_path_factory.mktemp("model")))


def limits(case: Case) -> PoolLimits:
    return PoolLimits(num_pages=48, page_size=16, max_model_len=case.max_model_len)


def plain(source: ModelSource, case: Case) -> TorchExecutor:
    spec = source.spec.for_context(case.max_model_len)
    return build_torch_executor(source, spec, limits(case), dtype=torch.float32, device=CPU)


def flex(
    source: ModelSource,
    case: Case,
    capture: CountedCapture,
    attend: Attend,
    room: PoolLimits | None = None,
) -> TorchExecutor:
    weights = load_decoder_weights(source, dtype=torch.float32, device=CPU)
    return build_flex_executor(
        source.spec.for_context(case.max_model_len),
        weights,
        room or limits(case),
        dtype=torch.float32,
        device=CPU,
        attend=attend,
        capture=capture,
    )


def assert_same(
    found: Sequence[Sequence[SampledToken]], expected: Sequence[Sequence[SampledToken]]
) -> None:
    for row, expected_row in zip(found, expected, strict=True):
        assert [token.token_id for token in row] == [token.token_id for token in expected_row]
        for token, other in zip(row, expected_row, strict=True):
            assert token.logprob is not None
            assert other.logprob is not None
            assert abs(token.logprob.logprob - other.logprob.logprob) < MAX_ERROR


@pytest.mark.parametrize("chunk_len", [23, 200])
def test_tokens_and_logits_are_those_of_the_plain_executor(
    case: Case, source: ModelSource, chunk_len: int
) -> None:
    expected = drive_greedily(
        plain(source, case), PROMPTS, num_tokens=NUM_TOKENS, chunk_len=chunk_len
    )
    capture = CountedCapture()
    executor = flex(source, case, capture, attend_listed_pages)
    found = drive_greedily(executor, PROMPTS, num_tokens=NUM_TOKENS, chunk_len=chunk_len)
    assert_same(found, expected)
    if source.spec.experts is None:
        assert capture.num_replays >= NUM_TOKENS - 1
    else:
        assert capture.num_replays == 0


def test_scores_of_a_prompt_are_those_of_the_plain_executor_beside_decode_rows(
    case: Case, source: ModelSource
) -> None:
    """Whose step is recorded where it is alone, and not where a prompt is beside it."""
    found = []
    capture = CountedCapture()
    for executor in (plain(source, case), flex(source, case, capture, attend_listed_pages)):
        decode = ScheduledRow(RowKey(0), (5,), 0, (PageId(9),), (0,))
        executor.forward(ScheduledBatch(0, (decode,)))
        num_replays = capture.num_replays
        ids = PROMPTS[0]
        scored = ScoredTokens(20, tuple(ids[21:]), num_best=4)
        prompt = ScheduledRow(RowKey(1), tuple(ids), 0, tuple(map(PageId, range(5))), (), scored)
        later = replace(decode, token_ids=(6,), start=1)
        executor.forward(ScheduledBatch(1, (later, prompt)))
        assert capture.num_replays == num_replays
        (scores,) = executor.score()
        found.append([[score.logprob, *dict(score.top).values()] for score in scores])
    expected, others = map(torch.tensor, found)
    assert expected.shape == (54, 5)
    assert (expected - others).abs().max() < MAX_ERROR


def test_an_engine_over_it_answers_from_cached_and_shared_pages(
    case: Case, source: ModelSource, tmp_path: Path
) -> None:
    config = RuntimeConfig(
        model=str(tmp_path),
        dtype="float32",
        device="cpu",
        num_threads=1,
        kv_memory_bytes=2**23,
        max_model_len=case.max_model_len,
        max_step_tokens=50,
    )
    loaded = load_executor(source, config)
    room = PoolLimits(loaded.num_pages, loaded.page_size, loaded.max_model_len)
    executor = flex(source, case, CountedCapture(), attend_listed_pages, room)
    info = engine_info("engine", source, loaded, config)
    base = PROMPTS[1][:100]  # ends within a page, which is copied on write
    prompts = [base, *([*base, 40 + i, *range(50, 50 + 3 * i)] for i in range(4))]
    sampling = Sampling(max_tokens=NUM_TOKENS, temperature=0.0, ignore_eos=True)
    answers = []
    for one in (loaded.executor, executor):
        engine = EngineDriver(one, info, config=config)
        engine.ask(make_submit("first", base, sampling=sampling))
        for number, prompt in enumerate(prompts):
            engine.submit(make_submit(str(number), prompt, sampling=sampling))
        engine.run()
        done = [engine.answer(str(number)) for number in range(len(prompts))]
        assert all(answer.last.usage and answer.last.usage.cached_tokens > 90 for answer in done)
        answers.append([answer.token_ids for answer in done])
    assert answers[0] == answers[1]


def test_no_forward_waits_for_the_device(case: Case, source: ModelSource) -> None:
    if source.spec.experts is not None:
        pytest.skip("which experts run is read from the device in every layer that has them")
    executor = flex(source, case, CountedCapture(), attend_listed_pages)
    decode = [
        ScheduledRow(RowKey(number), (5,), number, (PageId(number),), (0,)) for number in range(3)
    ]
    prompt = ScheduledRow(RowKey(9), tuple(PROMPTS[0]), 0, tuple(map(PageId, range(9, 15))), (74,))
    with NoReads():
        executor.forward(ScheduledBatch(0, tuple(decode)))
        executor.forward(ScheduledBatch(1, (*decode, prompt)))


@pytest.mark.timeout(180)  # FlexAttention traces every shape
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
@pytest.mark.parametrize("name", ["gemma3", "qwen2"])
def test_flex_attention_itself_gives_the_same(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    case = next(case for case in CASES if case.name == name)
    source = open_model(save_folder(make_model(case), tmp_path_factory.mktemp("model")))
    expected = drive_greedily(plain(source, case), PROMPTS, num_tokens=4, chunk_len=100)
    executor = flex(source, case, CountedCapture(), attend_pages)
    assert_same(drive_greedily(executor, PROMPTS, num_tokens=4, chunk_len=100), expected)
