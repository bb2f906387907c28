"""Loads and questions that the planner's tests share."""

from planning.accelerators import known_accelerator
from planning.known_models import known_model
from planning.kv_cache import KvFormat
from planning.load import ReplicaLoad
from planning.machine import Assumptions, Machine, machine_of
from planning.plan import Question
from planning.step_time import ServedModel
from planning.weights import weight_bytes
from planning.workload import Demand, Workload


def gpus(
    num_devices: int = 1, *, gpu: str = "H100-SXM", assumed: Assumptions | None = None
) -> Machine:
    return machine_of(
        known_accelerator(gpu),
        num_devices=num_devices,
        compute_bits=16,
        assumed=assumed or Assumptions(),
    )


def served(
    model: str = "llama-3.1-8b", machine: Machine | None = None, *, kv_bits: float = 16.0
) -> ServedModel:
    facts = known_model(model)
    return ServedModel(facts, weight_bytes(facts, 16), KvFormat(kv_bits), machine or gpus())


def load_of(
    model: str = "llama-3.1-8b",
    machine: Machine | None = None,
    *,
    prompt: int = 1000,
    output: int = 200,
    shared: int = 0,
    chunk: int = 2048,
    kv_bits: float = 16.0,
) -> ReplicaLoad:
    work = Workload(prompt, output, shared, chunk)
    return ReplicaLoad(served(model, machine, kv_bits=kv_bits), work)


def question_of(
    model: str = "llama-3.1-8b",
    *,
    users: int | None = 10,
    rate: float | None = None,
    ttft_s: float | None = None,
    tpot_s: float | None = None,
    work: Workload | None = None,
    sizes: tuple[int, ...] = (1, 2, 4, 8),
    gpu: str = "H100-SXM",
    num_gpus: int | None = None,
    price: float | None = None,
) -> Question:
    facts = known_model(model)
    return Question(
        facts=facts,
        weights=weight_bytes(facts, 16),
        weight_bits=16.0,
        kv=KvFormat(),
        machines=tuple(gpus(size, gpu=gpu) for size in sizes),
        workload=work or Workload(1000, 200),
        demand=Demand(users, rate, ttft_s, tpot_s),
        num_gpus=num_gpus,
        price_per_hour=price,
    )
