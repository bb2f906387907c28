"""The executor over a tiny random model: the same logits however they are computed."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from runtime.batch import (
    PageCopy,
    PageId,
    RowKey,
    SamplePlan,
    SampleRow,
    ScheduledBatch,
    ScheduledRow,
)
from runtime.batch import SampledToken as Token
from runtime.config import RuntimeConfig
from runtime.errors import ConfigError
from runtime.messages import Sampling
from runtime.model_runner import LoadedModel, load_executor, settle_max_model_len
from runtime.model_source import open_model
from runtime.native.native_executor import NativeExecutor
from runtime.torch_executor import TorchExecutor
from tests.greedy_driver import drive_greedily
from tests.native_library import (
    HAS_COMPILER,
    NO_COMPILER,
    built_library,
    make_cache,
    runnable_sets,
)
from tests.reference_model import load_reference_model
from tests.tiny_gguf import write_tiny_gguf
from tests.tiny_model import write_tiny_model

RAW = Sampling(max_tokens=1, temperature=0.0, num_logprobs=64)
PROMPTS = [[(7 * i + 3 * j) % 61 for j in range(length)] for i, length in enumerate((5, 40, 17))]


@pytest.fixture(scope="module")
def gguf_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("runner") / "tiny.gguf")


def load(path: Path, **settings: Any) -> LoadedModel:
    exact = RuntimeConfig(
        model=str(path), dtype="float32", device="cpu", num_threads=1, kv_memory_bytes=2**20
    )
    return load_executor(open_model(path), msgspec.structs.replace(exact, **settings))


@pytest.fixture(scope="module")
def loaded(gguf_path: Path) -> LoadedModel:
    return load(gguf_path)


def logprobs_of(token: Token) -> torch.Tensor:
    """The whole distribution, by token id."""
    assert token.logprob is not None
    assert len(token.logprob.top) == 64
    return torch.tensor([value for _, value in sorted(token.logprob.top)])


def row(tokens: list[int], *, start: int, pages: tuple[int, ...], sample: bool) -> ScheduledRow:
    return ScheduledRow(
        key=RowKey(0),
        token_ids=tuple(tokens),
        start=start,
        page_ids=tuple(PageId(page) for page in pages),
        sample_offsets=tuple(range(len(tokens))) if sample else (),
    )


def distributions(
    loaded: LoadedModel, *rows: ScheduledRow, copies: tuple[PageCopy, ...] = ()
) -> torch.Tensor:
    """One forward; the log-probabilities at every sampled place: [S, V]."""
    loaded.executor.forward(ScheduledBatch(step=0, rows=rows, copies=copies))
    count = sum(len(r.sample_offsets) for r in rows)
    plan = SamplePlan(tuple(SampleRow(RAW, 0, 0) for _ in range(count)))
    return torch.stack([logprobs_of(token) for token in loaded.executor.sample(plan)])


@pytest.fixture(scope="module")
def expected(gguf_path: Path) -> list[torch.Tensor]:
    """transformers' log-probabilities at every place of each prompt."""
    model = load_reference_model(gguf_path)
    with torch.inference_mode():
        return [model(torch.tensor([p])).logits[0].log_softmax(-1) for p in PROMPTS]


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)


def test_whole_prompts_in_one_batch_have_the_references_distributions(
    loaded: LoadedModel, expected: list[torch.Tensor]
) -> None:
    rows = [
        row(prompt, start=0, pages=tuple(range(3 * i, 3 * i + 3)), sample=True)
        for i, prompt in enumerate(PROMPTS)
    ]
    assert_close(distributions(loaded, *rows), torch.cat(expected))


@pytest.mark.parametrize("chunk_len", [1, 7, 16])
def test_chunks_over_cached_pages_have_the_references_distributions(
    loaded: LoadedModel, expected: list[torch.Tensor], chunk_len: int
) -> None:
    prompt, pages = PROMPTS[1], (11, 4, 8)
    parts = [
        distributions(
            loaded, row(prompt[start : start + chunk_len], start=start, pages=pages, sample=True)
        )
        for start in range(0, len(prompt), chunk_len)
    ]
    assert_close(torch.cat(parts), expected[1])


def test_a_copied_tail_page_continues_the_prefix(
    loaded: LoadedModel, expected: list[torch.Tensor]
) -> None:
    prompt = PROMPTS[1]
    loaded.executor.forward(
        ScheduledBatch(step=0, rows=(row(prompt[:25], start=0, pages=(0, 1), sample=False),))
    )
    copy = PageCopy(source=PageId(1), target=PageId(5), num_slots=7)
    rest = row(prompt[23:], start=23, pages=(0, 5, 6), sample=True)
    assert_close(distributions(loaded, rest, copies=(copy,)), expected[1][23:])


def test_greedy_tokens_do_not_depend_on_company_or_chunks(loaded: LoadedModel) -> None:
    alone = [
        drive_greedily(loaded.executor, [prompt], num_tokens=8, chunk_len=64)[0]
        for prompt in PROMPTS
    ]
    together = drive_greedily(loaded.executor, PROMPTS, num_tokens=8, chunk_len=7)
    assert [[t.token_id for t in tokens] for tokens in alone] == [
        [t.token_id for t in tokens] for tokens in together
    ]


def test_logits_are_given_only_where_they_are_wanted(loaded: LoadedModel) -> None:
    one = ScheduledRow(RowKey(0), (1, 2, 3), 0, (PageId(0),), (1,))
    none = ScheduledRow(RowKey(1), (4, 5), 0, (PageId(1),), ())
    loaded.executor.forward(ScheduledBatch(step=0, rows=(none, one)))
    plan = SamplePlan((SampleRow(RAW, 0, 0),))
    (sampled,) = loaded.executor.sample(plan)
    whole = distributions(loaded, row([1, 2, 3], start=0, pages=(2,), sample=True))
    assert_close(logprobs_of(sampled), whole[1])


def test_a_batch_without_rows_only_copies(loaded: LoadedModel) -> None:
    copy = PageCopy(source=PageId(0), target=PageId(1), num_slots=16)
    loaded.executor.forward(ScheduledBatch(step=0, rows=(), copies=(copy,)))
    assert loaded.executor.sample(SamplePlan(())) == ()


def test_bfloat16_stays_close_to_float32(gguf_path: Path, expected: list[torch.Tensor]) -> None:
    loaded = load(gguf_path, dtype="bfloat16")
    assert loaded.dtype == "bfloat16"
    actual = distributions(loaded, row(PROMPTS[1], start=0, pages=(0, 1, 2), sample=True))
    assert (actual - expected[1]).abs().max() < 0.1


def test_an_untied_output_matrix_of_a_folder_is_used(tmp_path: Path) -> None:
    from transformers import LlamaForCausalLM

    folder = write_tiny_model(tmp_path / "tiny")
    reference: Any = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    prompt = PROMPTS[2]
    ours = drive_greedily(
        load(folder, kv_memory_bytes=2**21).executor, [prompt], num_tokens=12, chunk_len=9
    )[0]
    with torch.inference_mode():
        theirs = reference.generate(
            torch.tensor([prompt]), max_new_tokens=12, do_sample=False, eos_token_id=[]
        )
    assert [token.token_id for token in ours] == theirs[0, len(prompt) :].tolist()


def test_the_pool_is_sized_by_the_memory_given(gguf_path: Path) -> None:
    page_bytes = 2 * 2 * 2 * 16 * 16 * 4  # k and v, layers, kv heads, head size, slots, float32
    loaded = load(gguf_path, kv_memory_bytes=10 * page_bytes + 1)
    assert (loaded.num_pages, loaded.page_size, loaded.max_model_len) == (10, 16, 160)
    assert load(gguf_path).max_model_len == 256  # the model's context


def test_memory_for_less_than_a_page_is_an_error(gguf_path: Path) -> None:
    with pytest.raises(ConfigError, match="kv_memory_bytes is 100"):
        load(gguf_path, kv_memory_bytes=100)


def test_max_model_len_is_the_least_of_what_is_asked_and_possible() -> None:
    assert settle_max_model_len(asked=None, model_limit=100, pool_tokens=50) == 50
    assert settle_max_model_len(asked=None, model_limit=100, pool_tokens=500) == 100
    assert settle_max_model_len(asked=30, model_limit=100, pool_tokens=50) == 30


def test_asking_for_more_than_model_or_pool_allow_is_an_error() -> None:
    with pytest.raises(ConfigError, match="the model's context is 100"):
        settle_max_model_len(asked=101, model_limit=100, pool_tokens=500)
    with pytest.raises(ConfigError, match="the KV memory holds 50 tokens"):
        settle_max_model_len(asked=60, model_limit=100, pool_tokens=50)


def test_the_page_root_depends_on_the_dtype_and_the_model(gguf_path: Path, tmp_path: Path) -> None:
    other = write_tiny_gguf(tmp_path / "other.gguf", seed=1)
    roots = {
        load(gguf_path).kv_root,
        load(gguf_path, dtype="bfloat16").kv_root,
        load(other).kv_root,
    }
    assert len(roots) == 3
    assert load(gguf_path).kv_root == load(gguf_path).kv_root


NARROW_HEADS = {
    "llama.attention.head_count": 8,
    "llama.attention.head_count_kv": 4,
    "llama.rope.dimension_count": 8,
}


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The native step is there; the weights are not packed yet."""
    if not HAS_COMPILER:
        pytest.skip(NO_COMPILER)
    built_library(runnable_sets()[0])
    monkeypatch.setenv("XDG_CACHE_HOME", str(make_cache(tmp_path / "cache")))


@pytest.mark.timeout(300)  # builds the library
@pytest.mark.usefixtures("built")
def test_auto_is_the_native_step(gguf_path: Path, expected: list[torch.Tensor]) -> None:
    loaded = load(gguf_path, dtype="auto")
    assert loaded.dtype == "int8"
    assert isinstance(loaded.executor, NativeExecutor)
    actual = distributions(loaded, row(PROMPTS[1], start=0, pages=(0, 1, 2), sample=True))
    error = (actual - expected[1]).abs().max()
    assert 0 < error < 0.2
    assert loaded.kv_root == load(gguf_path, dtype="int8").kv_root
    assert loaded.kv_root != load(gguf_path, dtype="bfloat16").kv_root
    assert loaded.num_pages == load(gguf_path, dtype="bfloat16").num_pages


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("built")
def test_a_model_that_the_native_step_cannot_run_runs_with_torch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_tiny_gguf(tmp_path / "narrow.gguf", metadata=NARROW_HEADS)
    with caplog.at_level("INFO", logger="runtime.model_runner"):
        loaded = load(path, dtype="auto")
    assert loaded.dtype in ("float32", "bfloat16")
    assert isinstance(loaded.executor, TorchExecutor)
    (line,) = caplog.messages
    assert line.startswith("this model runs without the native step: a head size of 8 is no")
    with pytest.raises(ConfigError, match=r"dtype is int8, but .* a head size of 8"):
        load(path, dtype="int8")


@pytest.mark.parametrize(("dtype", "is_said"), [("auto", True), ("float32", False)])
def test_auto_without_a_compiler_says_why_it_is_slow(
    dtype: str,
    is_said: bool,
    gguf_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with caplog.at_level("INFO", logger="runtime.model_runner"):
        assert load(gguf_path, dtype=dtype).dtype != "int8"
    said = ["without a C++ compiler (g++) there is no native step: torch alone is slower"]
    assert caplog.messages == (said if is_said else [])


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("built")
def test_pages_that_are_no_whole_blocks_are_for_torch(gguf_path: Path) -> None:
    assert load(gguf_path, dtype="auto", page_size=8).dtype != "int8"
    with pytest.raises(ConfigError, match="a page of 8 tokens is no multiple of 16"):
        load(gguf_path, dtype="int8", page_size=8)
