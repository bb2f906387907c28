"""Published measurements beside what the planner says of them.

`python -m planning.published` prints the table of docs/plan.md; a test compares the two. Nothing
is adjusted to a row: all use the default assumptions but for what the source says.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass

from planning.accelerators import Accelerator, known_accelerator
from planning.known_models import known_model
from planning.kv_cache import KvFormat, sequence_bytes
from planning.load import ReplicaLoad
from planning.machine import Assumptions, machine_of
from planning.step_time import ServedModel
from planning.weights import weight_bytes
from planning.workload import Workload

_TRT_2023 = (
    "TensorRT-LLM 0.5/0.6.1, [performance.md](https://github.com/NVIDIA/TensorRT-LLM/blob/"
    "77d24b5fa178f11ed7fafdd9833b7245e075f721/docs/source/performance.md), December 2023"
)
_TRT_2025 = (
    "TensorRT-LLM 1.0, [perf-overview.md](https://github.com/NVIDIA/TensorRT-LLM/blob/"
    "00f37686aa854010d68bcbd0f4ab000221541ca6/docs/source/performance/perf-overview.md), 2025"
)
_NIM = (
    "NVIDIA NIM 1.8.0, [performance](https://docs.nvidia.com/nim/benchmarking/llm/1.0.0/"
    "performance), read 2026-12"
)
_VLLM_CI = (
    "vLLM's own runs, [build 9515](https://buildkite.com/vllm/performance-benchmark/builds/9515),"
    " end of 2024"
)
_LLAMA_CPP = "[llama.cpp#15802](https://github.com/ggml-org/llama.cpp/pull/15802), September 2025"
_VLLM_7379 = "[vllm#7379](https://github.com/vllm-project/vllm/issues/7379), a maintainer, 2024"
_V1_BLOG = "[vLLM V1](https://blog.vllm.ai/2025/01/27/v1-alpha-release.html), January 2025"
_AIMULTIPLE = "aimultiple.com, LLM inference engines, second-hand"
_SPHERON = "spheron.network, March 2026, second-hand"


@dataclass(frozen=True, slots=True)
class Setup:
    """What was measured. `weight_bits` and `kv_bits` of the model as served; 8 bits are computed
    in 8. `table_bits` of embedding and output."""

    model: str
    gpu: str
    prompt: int
    output: int
    num_gpus: int = 1
    weight_bits: float = 16.0
    kv_bits: float = 16.0
    table_bits: float = 16.0
    memory_share: float = 0.9

    def load(self) -> ReplicaLoad:
        gpu = _CPU_40 if self.gpu == _CPU_40.name else known_accelerator(self.gpu)
        assumed = _BARE if gpu is _CPU_40 else Assumptions(memory=self.memory_share)
        machine = machine_of(
            gpu,
            num_devices=self.num_gpus,
            compute_bits=8 if self.weight_bits == 8 else 16,
            assumed=assumed,
        )
        facts = known_model(self.model)
        weights = weight_bytes(facts, self.weight_bits, table_bits=self.table_bits)
        served = ServedModel(facts, weights, KvFormat(self.kv_bits), machine)
        return ReplicaLoad(served, Workload(self.prompt, self.output, chunk=8192))


# A CPU of the example in vllm#7379, of which only the bandwidth matters.
_CPU_40 = Accelerator("40 GB/s", 64e9, 40e9, 1e12, None, math.inf, "vllm#7379")
_BARE = Assumptions(bandwidth=1.0, compute=1.0, step_s=0.0, request_s=0.0)


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement: what of `setup` was measured, its value, and who says so."""

    setup: Setup
    metric: str
    unit: str
    published: float
    predict: Callable[[ReplicaLoad], float]
    source: str

    @property
    def predicted(self) -> float:
        return self.predict(self.setup.load())

    @property
    def ratio(self) -> float:
        return self.predicted / self.published


def _prefill_ms(load: ReplicaLoad) -> float:
    return load.prefill.total_s * 1e3


def _ttft_ms(load: ReplicaLoad) -> float:
    return load.ttft_alone_s() * 1e3


def _tpot_ms(load: ReplicaLoad) -> float:
    return load.tpot_alone_s() * 1e3


def _tokens_s(load: ReplicaLoad) -> float:
    return 1 / load.tpot_alone_s()


def _batch_ms(rows: int) -> Callable[[ReplicaLoad], float]:
    """So many prompts at once, then all their tokens together."""

    def predict(load: ReplicaLoad) -> float:
        prompts_s = rows * load.prompt_work_s + load.prefill.overhead_s
        steps_s = load.workload.num_decode_steps * load.decode_step(rows).total_s
        return (prompts_s + steps_s) * 1e3

    return predict


def _loaded_ttft_ms(users: int) -> Callable[[ReplicaLoad], float]:
    return lambda load: load.with_users(users).ttft_s * 1e3


def _loaded_tpot_ms(users: int) -> Callable[[ReplicaLoad], float]:
    return lambda load: load.with_users(users).tpot_s * 1e3


def _loaded_tokens_s(users: int) -> Callable[[ReplicaLoad], float]:
    return lambda load: load.with_users(users).rate * load.workload.output


def _most_tokens_s(load: ReplicaLoad) -> float:
    """As many rows as fit at their mean length, and a queue that never ends."""
    served, work = load.served, load.workload
    room = served.machine.usable_bytes - served.weights.total(served.facts)
    rows = room / sequence_bytes(served.facts, served.kv, work.mean_context)
    return load.with_rows(rows, users=None).rate * work.output


def _trt_first(
    model: str, gpu: str, prompt: int, published: float, *, num_gpus: int = 1, bits: float = 16.0
) -> Figure:
    setup = Setup(model, gpu, prompt, 1, num_gpus, bits, kv_bits=bits)
    return Figure(setup, "first token, alone", "ms", published, _prefill_ms, _TRT_2023)


def _trt_most(
    model: str, gpu: str, lengths: tuple[int, int], published: float, *, num_gpus: int = 1
) -> Figure:
    setup = Setup(model, gpu, *lengths, num_gpus, 8.0, kv_bits=8.0)
    return Figure(setup, "most output", "tokens/s", published, _most_tokens_s, _TRT_2025)


def _nim(users: int, ttft_ms: float, itl_ms: float) -> tuple[Figure, Figure]:
    setup = Setup("llama-3.3-70b", "H100-SXM", 5000, 500, 2, 8.0)
    text = "alone" if users == 1 else f"{users} users"
    ttft = _ttft_ms if users == 1 else _loaded_ttft_ms(users)
    tpot = _tpot_ms if users == 1 else _loaded_tpot_ms(users)
    return (
        Figure(setup, f"TTFT, {text}", "ms", ttft_ms, ttft, _NIM),
        Figure(setup, f"TPOT, {text}", "ms", itl_ms, tpot, _NIM),
    )


def _vllm_batch(model: str, num_gpus: int, published: float) -> Figure:
    setup = Setup(model, "H200", 32, 128, num_gpus)
    return Figure(setup, "8 requests at once", "ms", published, _batch_ms(8), _VLLM_CI)


FIGURES: tuple[Figure, ...] = (
    _trt_first("llama-2-7b", "A100-80GB", 128, 16),
    _trt_first("llama-2-7b", "A100-80GB", 2048, 133),
    _trt_first("llama-2-70b", "A100-80GB", 128, 47, num_gpus=4),
    _trt_first("llama-2-70b", "A100-80GB", 2048, 377, num_gpus=4),
    _trt_first("llama-2-7b", "H100-SXM", 128, 7, bits=8),
    _trt_first("llama-2-7b", "H100-SXM", 2048, 36, bits=8),
    _trt_first("llama-2-70b", "H100-SXM", 2048, 109, num_gpus=4, bits=8),
    _trt_first("llama-2-7b", "L40S", 128, 14, bits=8),
    _trt_first("llama-2-7b", "L40S", 2048, 73, bits=8),
    *_nim(1, 406.77, 18.58),
    *_nim(25, 688.69, 38.75),
    _vllm_batch("llama-3.1-8b", 1, 833.4),
    _vllm_batch("llama-3.1-70b", 4, 2077.5),
    _vllm_batch("mixtral-8x7b", 2, 1917.4),
    _trt_most("llama-3.1-8b", "H100-SXM", (128, 2048), 22_714),
    _trt_most("llama-3.1-8b", "H100-SXM", (1000, 1000), 15_220),
    _trt_most("llama-3.1-8b", "H100-SXM", (2048, 128), 3_450),
    _trt_most("llama-3.1-8b", "H100-SXM", (20_000, 2000), 1_351),
    _trt_most("llama-3.1-8b", "H200", (1000, 1000), 17_744),
    _trt_most("llama-3.3-70b", "H100-SXM", (1000, 1000), 4_205, num_gpus=2),
    _trt_most("llama-3.3-70b", "H100-SXM", (2048, 128), 762, num_gpus=2),
    _trt_most("llama-3.3-70b", "H200", (1000, 1000), 2_909),
    _trt_most("llama-3.1-405b", "H200", (1000, 1000), 3_330, num_gpus=8),
    Figure(
        Setup("llama-3.1-8b", "RTX-3090", 1, 512, 1, 4.5, table_bits=6.56),
        "alone",
        "tokens/s",
        155.0,
        _tokens_s,
        _LLAMA_CPP,
    ),
    Figure(Setup("llama-3.1-8b", "H100-SXM", 1, 128), "a step, alone", "ms", 5, _tpot_ms, _V1_BLOG),
    Figure(
        Setup("llama-3.1-8b", "40 GB/s", 1, 1, 1, 32.0),
        "alone",
        "tokens/s",
        1.25,
        _tokens_s,
        _VLLM_7379,
    ),
    Figure(
        Setup("llama-3.1-8b", "H100-SXM", 230, 203),
        "most output",
        "tokens/s",
        16_215,
        _most_tokens_s,
        _AIMULTIPLE,
    ),
    Figure(
        Setup("llama-3.3-70b", "H100-SXM", 512, 256, 1, 8.0, kv_bits=8.0, memory_share=0.95),
        "output, 50 users",
        "tokens/s",
        1_850,
        _loaded_tokens_s(50),
        _SPHERON,
    ),
)


def table() -> str:
    """The figures as a table in Markdown."""
    lines = [
        "| model | on | bits | tokens | measured | predicted | published | ratio | source |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    sources = {source: f"[{i}]" for i, source in enumerate(_sources(), 1)}
    for one in FIGURES:
        setup = one.setup
        cells = (
            setup.model,
            f"{setup.num_gpus} x {setup.gpu}",
            f"{setup.weight_bits:g}",
            f"{setup.prompt:,} + {setup.output:,}",
            one.metric,
            f"{_short(one.predicted)} {one.unit}",
            _short(one.published),
            f"{one.ratio:.2f}",
            sources[one.source],
        )
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", *(f"{mark} {source}  " for source, mark in sources.items())]
    return "\n".join(lines) + "\n"


def _sources() -> list[str]:
    return list(dict.fromkeys(one.source for one in FIGURES))


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    sys.stdout.write(table())
