"""A machine whose rates were measured: what the server's own code takes is added to them."""

from planning.known_models import known_model
from planning.kv_cache import KvFormat
from planning.machine import CPU_STEP_S, Assumptions, CpuRates, machine_of_cpu
from planning.step_time import ServedModel
from planning.weights import weight_bytes

RATES = CpuRates(
    name="a CPU",
    memory_bytes=8e9,
    weight_bytes_s=40e9,
    kv_bytes_s=30e9,
    decode_flops=8e11,
    prefill_flops=9e11,
    attention_flops=5e11,
)


def test_each_row_of_a_step_costs_the_runtime_and_the_gateway_on_the_same_cores() -> None:
    facts = known_model("smollm2-135m")
    machine = machine_of_cpu(RATES, assumed=Assumptions(step_s=CPU_STEP_S, request_s=0.0))
    served = ServedModel(facts, weight_bytes(facts, 8), KvFormat(), machine)
    one, sixteen = (served.decode_step(rows=rows, context=100) for rows in (1, 16))
    # 9 us a row in the runtime (tests.bench.step_overhead) and 71 us a token in the gateway.
    assert abs(sixteen.overhead_s - one.overhead_s - 15 * 80e-6) < 1e-9
    assert abs(one.overhead_s - CPU_STEP_S - 80e-6) < 1e-9
