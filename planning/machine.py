"""What one replica can do: the rates of its GPUs after what is lost of the data sheet's, or the
rates that were measured on a CPU."""

from dataclasses import dataclass

from planning.accelerators import Accelerator
from planning.errors import PlanError


@dataclass(frozen=True, slots=True)
class Assumptions:
    """Shares of the data sheet's figures that a good engine reaches, and what it costs beside the
    model. docs/plan.md says where each default is from.

    `memory`: of the memory, for weights and KV. `bandwidth` and `compute`: of the peaks.
    `step_s`: of each step beside the model (launches, sampling, scheduling); `request_s`: of each
    request before its first token (HTTP, template, tokenizer). `all_reduce_s`: of one that
    carries nothing.
    """

    memory: float = 0.9
    bandwidth: float = 0.8
    compute: float = 0.5
    step_s: float = 0.001
    request_s: float = 0.010
    all_reduce_s: float = 10e-6

    def check(self) -> "Assumptions":
        """Itself. Raises: PlanError for a share outside (0, 1]."""
        for name in ("memory", "bandwidth", "compute"):
            if not 0 < getattr(self, name) <= 1:
                raise PlanError(f"the {name} share must be above 0 and at most 1")
        return self


@dataclass(frozen=True, slots=True)
class Machine:
    """One replica. Rates are of all its `num_devices` together: `bandwidth` and `kv_bandwidth` in
    bytes/s (weights; keys and values), FLOP/s of the matrices in steps of few rows and in
    prefill, and of attention in prefill. `usable_bytes` hold weights and KV. Each step takes
    `step_s` and `row_s` a row besides, each request `request_s`; `link` and `all_reduce_s` as in
    Accelerator and Assumptions."""

    name: str
    num_devices: int
    usable_bytes: float
    bandwidth: float
    kv_bandwidth: float
    decode_flops: float
    prefill_flops: float
    attention_flops: float
    link: float
    all_reduce_s: float
    step_s: float
    request_s: float
    row_s: float = 0.0


@dataclass(frozen=True, slots=True)
class CpuRates:
    """What was measured on a CPU: bytes/s and FLOP/s, all of its cores together (see
    runtime/calibration.py)."""

    name: str
    memory_bytes: float
    weight_bytes_s: float
    kv_bytes_s: float
    decode_flops: float
    prefill_flops: float
    attention_flops: float


# What this server's own code takes on the same cores, measured without a model: a step
# (tests.bench.step_overhead), and a row's token in the runtime and in a gateway whose cores the
# runtime uses as well (tests.bench.tracing_cost). docs/plan.md has the runs.
CPU_STEP_S, CPU_ROW_S, CPU_REQUEST_S = 25e-6, 80e-6, 0.005


def machine_of_cpu(rates: CpuRates, *, assumed: Assumptions) -> Machine:
    """A CPU whose rates were measured: nothing is taken off but of the memory."""
    assumed.check()
    return Machine(
        name=rates.name,
        num_devices=1,
        usable_bytes=rates.memory_bytes * assumed.memory,
        bandwidth=rates.weight_bytes_s,
        kv_bandwidth=rates.kv_bytes_s,
        decode_flops=rates.decode_flops,
        prefill_flops=rates.prefill_flops,
        attention_flops=rates.attention_flops,
        link=float("inf"),
        all_reduce_s=0.0,
        step_s=assumed.step_s,
        request_s=assumed.request_s,
        row_s=CPU_ROW_S,
    )


def machine_of(
    gpu: Accelerator, *, num_devices: int, compute_bits: int, assumed: Assumptions
) -> Machine:
    """`num_devices` of a GPU as one replica. Attention computes in 16 bits. Raises: PlanError."""
    assumed.check()
    peak = gpu.flops_8 if compute_bits == 8 else gpu.flops_16
    if peak is None:
        raise PlanError(f"{gpu.name} has no faster arithmetic in 8 bits; plan with 16 compute bits")
    flops = peak * assumed.compute * num_devices
    bandwidth = gpu.bandwidth * assumed.bandwidth * num_devices
    return Machine(
        name=gpu.name,
        num_devices=num_devices,
        usable_bytes=gpu.memory_bytes * assumed.memory * num_devices,
        bandwidth=bandwidth,
        kv_bandwidth=bandwidth,
        decode_flops=flops,
        prefill_flops=flops,
        attention_flops=gpu.flops_16 * assumed.compute * num_devices,
        link=gpu.link,
        all_reduce_s=assumed.all_reduce_s,
        step_s=assumed.step_s,
        request_s=assumed.request_s,
    )
