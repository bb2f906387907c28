"""More load than the pages hold, in simulated time: throughput stays near the best there is."""

import itertools
import random
from collections.abc import Callable

import pytest

from runtime.config import RuntimeConfig
from runtime.growth import GrowthForecast
from tests.simulation import MS, S, Simulation, StepCost, make_request

# A step costs much however few rows it has (two cores, 8-bit weights), or each row for itself.
COSTS = {
    "shared": StepCost(base_ns=12 * MS, row_ns=0.75 * MS, token_ns=0.5 * MS, attend_ns=20),
    "by row": StepCost(base_ns=MS, row_ns=2 * MS, token_ns=1.5 * MS, attend_ns=100),
}
# Tokens of prompt and answer, and max_tokens where it is not the answer's length.
Load = list[tuple[int, int, int | None]]
MakeLoad = Callable[[random.Random], Load]
NUM_PAGES = 64
NUM_CLIENTS = 16
NUM_REQUESTS = 24


def long_prompts(rng: random.Random) -> Load:
    return [(rng.randint(200, 800), rng.randint(10, 50), None) for _ in range(NUM_REQUESTS)]


def long_answers(rng: random.Random) -> Load:
    return [(rng.randint(8, 40), rng.randint(40, 300), None) for _ in range(NUM_REQUESTS)]


def equal_answers(_: random.Random) -> Load:
    return [(32, 250, None)] * NUM_REQUESTS


def both_long(rng: random.Random) -> Load:
    return [(rng.randint(150, 300), rng.randint(40, 200), None) for _ in range(NUM_REQUESTS)]


def unbounded_short(rng: random.Random) -> Load:
    return [(rng.randint(20, 200), rng.randint(5, 70), 16_000) for _ in range(NUM_REQUESTS)]


def unbounded_mixed(rng: random.Random) -> Load:
    lengths = [10, 15, 350]
    return [(rng.randint(20, 100), rng.choice(lengths), 16_000) for _ in range(NUM_REQUESTS)]


LOADS = [long_prompts, long_answers, equal_answers, both_long, unbounded_short, unbounded_mixed]


def run(cost: StepCost, load: Load, *, max_running: int) -> Simulation:
    """Clients that send their next request when one is answered, in a pool far too small."""
    config = RuntimeConfig(model="simulated", max_running=max_running)
    simulation = Simulation(cost, num_pages=NUM_PAGES, max_model_len=900, config=config)
    requests = (
        make_request(f"r{number}", num_prompt=prompt, num_output=output, max_tokens=max_tokens)
        for number, (prompt, output, max_tokens) in enumerate(load)
    )

    def send_next(_: str) -> None:
        for request in itertools.islice(requests, 1):
            simulation.submit(request)

    simulation.on_end = send_next
    for request in itertools.islice(requests, NUM_CLIENTS):
        simulation.submit(request)
    simulation.run()
    return simulation


def tokens_per_second(simulation: Simulation) -> float:
    assert all(record.last and record.last.usage for record in simulation.records.values())
    return simulation.engine.stats().generated_tokens / (simulation.now_ns / S)


@pytest.mark.parametrize("make_load", LOADS)
@pytest.mark.parametrize("cost", COSTS.values(), ids=COSTS.keys())
def test_throughput_is_near_the_best_that_any_limit_on_running_requests_gives(
    cost: StepCost, make_load: MakeLoad, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the best of an engine that lets in whatever fits now, which preempts far more."""
    load = make_load(random.Random(7))
    simulation = run(cost, load, max_running=16)
    found = [tokens_per_second(run(cost, load, max_running=limit)) for limit in (3, 5)]
    monkeypatch.setattr(GrowthForecast, "fits", lambda *_, **__: True)
    found += [tokens_per_second(run(cost, load, max_running=limit)) for limit in (4, 16)]
    assert tokens_per_second(simulation) >= 0.8 * max(found)


@pytest.mark.parametrize("make_load", LOADS)
def test_what_is_computed_twice_is_less_than_half_of_what_is_generated(
    make_load: MakeLoad,
) -> None:
    stats = run(COSTS["shared"], make_load(random.Random(7)), max_running=16).engine.stats()
    assert stats.recomputed_tokens <= 0.5 * stats.generated_tokens
