"""What `radixgate plan --cpu` says of this machine beside what the server does:
`python -m tests.bench.plan_check`.

The machine is measured with random layers of the default model's shape, before and after the server
is; the plan is made of the faster run of each rate. The server is never measured for the plan. That
is of a server whose clients are elsewhere: here the client shares its cores, and the processor time
that it takes for a token is added for each row of a step.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from gateway.default_model import default_model_path, ensure_default_model
from gateway.plan_device import calibrate, cpu_machine
from gateway.plan_flags import add_flags
from gateway.plan_model import FoundModel, find_model
from planning.kv_cache import KvFormat
from planning.load import ReplicaLoad
from planning.machine import CPU_REQUEST_S, CPU_STEP_S, Assumptions
from planning.step_time import ServedModel
from planning.weights import stored_weight_bytes
from planning.workload import Workload
from runtime.calibration_messages import Calibration
from telemetry.answer_stream import Answer, StreamError, read_answer
from tests.bench.client import run_load
from tests.bench.processor import ProcessorTimes
from tests.bench.servers import Endpoint, product, running
from tests.bench.single_bench import run_single
from tests.bench.workloads import Body, make_bodies, make_long_prompt

MAX_RATIO = 1.3
_NUM_STREAMS, _NUM_REQUESTS_EACH = 16, 3
_CHUNK = 512
_LONG_PROMPT_WORDS = {"280 tokens": 250, "1,400 tokens": 1390}


@dataclass(frozen=True, slots=True)
class Check:
    """One figure, in milliseconds."""

    name: str
    predicted_ms: float
    measured_ms: float

    @property
    def ratio(self) -> float:
        return self.predicted_ms / self.measured_ms

    def describe(self) -> str:
        return (
            f"{self.name:<22} predicted {self.predicted_ms:8.2f} ms,"
            f" measured {self.measured_ms:8.2f} ms, ratio {self.ratio:.2f}"
        )


@dataclass(frozen=True, slots=True)
class Measured:
    """Medians of the answers to requests of one kind; `client_ms` is the client's processor time
    for each of their tokens."""

    prompt: int
    cached: int
    output: int
    ttft_ms: float
    tpot_ms: float
    client_ms: float


async def ask_all(endpoint: Endpoint, bodies: Sequence[Body], *, num_clients: int) -> Measured:
    """Raises: StreamError."""
    start_s = time.process_time()
    load = await run_load(endpoint.base_url, bodies, num_clients=num_clients)
    client_s = time.process_time() - start_s
    answers = [read_answer(stream) for stream in load.streams]
    return Measured(
        prompt=_median([answer.prompt_tokens for answer in answers]),
        cached=_median([answer.cached_tokens or 0 for answer in answers]),
        output=_median([answer.output_tokens for answer in answers]),
        ttft_ms=statistics.median(_times(answer)[0] for answer in answers),
        tpot_ms=statistics.median(_times(answer)[1] for answer in answers),
        client_ms=client_s * 1e3 / sum(answer.output_tokens for answer in answers),
    )


def _median(counts: Sequence[int]) -> int:
    return round(statistics.median(counts))


def _times(answer: Answer) -> tuple[float, float]:
    if answer.timing is None or answer.timing.tpot_s is None:
        raise StreamError("an answer without tokens")
    return answer.timing.ttft_s * 1e3, answer.timing.tpot_s * 1e3


def replica_load(found: FoundModel, calibration: Calibration, measured: Measured) -> ReplicaLoad:
    """What the plan is made for: requests as they were sent."""
    assert found.packed is not None
    assumed = Assumptions(step_s=CPU_STEP_S, request_s=CPU_REQUEST_S)
    machine = cpu_machine(calibration, assumed)
    weights = stored_weight_bytes(found.facts, found.packed)
    served = ServedModel(found.facts, weights, KvFormat(), machine)
    work = Workload(measured.prompt, measured.output, measured.cached, _CHUNK)
    return ReplicaLoad(served, work)


def faster(one: Calibration, other: Calibration) -> Calibration:
    """Of each rate the higher: what else ran meanwhile only lowers it."""
    first, second = msgspec.to_builtins(one), msgspec.to_builtins(other)
    best = {
        name: max(value, second[name]) if isinstance(value, float) else value
        for name, value in first.items()
    }
    return msgspec.convert(best, type=Calibration)


async def measure_server(num_rounds: int) -> dict[str, Measured]:
    """Raises: ServerError, StreamError."""
    found: dict[str, Measured] = {}
    async with running(product()) as endpoint:
        model = endpoint.model
        warm = make_bodies("short", model, num_requests=_NUM_STREAMS, seed="warm")
        await ask_all(endpoint, warm, num_clients=_NUM_STREAMS)
        start = ProcessorTimes.now(endpoint.pid)
        for name, num_words in _LONG_PROMPT_WORDS.items():
            bodies = [
                make_long_prompt(model, num_words=num_words, max_tokens=4, seed=f"{name}/{i}")
                for i in range(num_rounds + 1)
            ]
            await ask_all(endpoint, bodies[:1], num_clients=1)
            found[f"TTFT, {name}"] = await ask_all(endpoint, bodies[1:], num_clients=1)
        bodies = make_bodies("short", model, num_requests=num_rounds, seed="alone")
        found["TPOT, 1 stream"] = await ask_all(endpoint, bodies, num_clients=1)
        num_together = _NUM_STREAMS * _NUM_REQUESTS_EACH
        bodies = make_bodies("short", model, num_requests=num_together, seed="together")
        name = f"TPOT, {_NUM_STREAMS} streams"
        found[name] = await ask_all(endpoint, bodies, num_clients=_NUM_STREAMS)
        print(ProcessorTimes.now(endpoint.pid).describe_since(start))
    return found


async def measure(options: argparse.Namespace) -> bool:
    path = default_model_path(os.environ.get("RADIXGATE_MODEL_DIR"))
    ensure_default_model(path)
    flags = argparse.ArgumentParser()
    add_flags(flags.add_subparsers())
    model = find_model(flags.parse_args(["plan", "--model", str(path)]))
    before = calibrate(model)
    found = await measure_server(options.rounds)
    calibration = faster(before, calibrate(model))
    print(msgspec.json.encode(calibration).decode())
    checks = []
    for name, measured in found.items():
        load = replica_load(model, calibration, measured)
        if name.startswith("TTFT"):
            check = Check(name, load.ttft_alone_s() * 1e3, measured.ttft_ms)
        else:
            num_users = 1 if name.endswith("1 stream") else _NUM_STREAMS
            planned_ms = load.with_users(num_users).tpot_s * 1e3
            print(f"client: {measured.client_ms:.3f} ms of processor time a token")
            check = Check(name, planned_ms + num_users * measured.client_ms, measured.tpot_ms)
        checks.append(check)
        print(check.describe(), flush=True)
    print(f"target: ratios between {1 / MAX_RATIO:.2f} and {MAX_RATIO}")
    return all(1 / MAX_RATIO <= check.ratio <= MAX_RATIO for check in checks)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=8, help="requests of each kind")
    return parser


if __name__ == "__main__":
    sys.exit(run_single("plan_check", _parser(), measure))
