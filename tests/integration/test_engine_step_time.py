"""Streams go on at their pace while prompts are computed beside them, in simulated time."""

import random
import statistics

import pytest

from runtime.batch import ScheduledBatch
from runtime.config import RuntimeConfig
from runtime.step_budget import StepShape
from tests.simulation import MS, S, Simulation, StepCost, make_request

# Nanoseconds like those of a GPU (weights are read in 8 ms, then tokens count), of the two-core
# machine of docs/benchmarks.md with an 8-bit and with a slow model, and of attention that costs
# more than all else from 1,000 tokens on.
COSTS = {
    "gpu": StepCost(base_ns=MS, row_ns=0.04 * MS, token_ns=0.04 * MS, floor_ns=8 * MS),
    "cpu": StepCost(base_ns=12 * MS, row_ns=0.75 * MS, token_ns=0.5 * MS, attend_ns=20),
    "slow cpu": StepCost(base_ns=100 * MS, row_ns=10 * MS, token_ns=8 * MS, attend_ns=100),
    "attention": StepCost(base_ns=12 * MS, row_ns=0.3 * MS, token_ns=0.2 * MS, attend_ns=200),
}
NUM_STREAMS = 8


def p99(values: list[int]) -> int:
    return sorted(values)[int(0.99 * (len(values) - 1))]


def with_streams(cost: StepCost) -> Simulation:
    """Eight streams that go on for long, and have been alone for a hundred tokens."""
    simulation = Simulation(cost)
    for number in range(NUM_STREAMS):
        simulation.submit(make_request(f"s{number}", num_prompt=100, num_output=5_000))
    run_until_streams_have(simulation, 100)
    return simulation


def run_until_streams_have(simulation: Simulation, num_tokens: int) -> None:
    while len(simulation.records["s0"].token_ns) < num_tokens:
        simulation.run(until_ns=simulation.now_ns + 1)


def run_until_answered(simulation: Simulation, request_id: str) -> None:
    while not simulation.records[request_id].token_ns:
        simulation.run(until_ns=simulation.now_ns + 1)


def stream_gaps(simulation: Simulation, start_ns: int) -> list[int]:
    streams = (simulation.records[f"s{number}"] for number in range(NUM_STREAMS))
    return [gap for stream in streams for gap in stream.gaps_ns(start_ns)]


def gaps_beside_a_prompt(simulation: Simulation, num_prompt: int) -> tuple[list[int], list[int]]:
    """The streams' times between tokens before and while a prompt is computed."""
    now_ns = simulation.now_ns
    before = stream_gaps(simulation, 0)[-20:]
    simulation.submit(make_request("long", num_prompt=num_prompt, num_output=1))
    run_until_answered(simulation, "long")
    return before, stream_gaps(simulation, now_ns)


def time_alone(cost: StepCost, num_prompt: int) -> int:
    simulation = Simulation(cost)
    simulation.submit(make_request("long", num_prompt=num_prompt, num_output=1))
    simulation.run()
    return simulation.records["long"].first_token_after_ns


@pytest.mark.parametrize("cost", COSTS.values(), ids=COSTS.keys())
def test_a_long_prompt_slows_streams_down_to_at_most_two_and_a_half_times(cost: StepCost) -> None:
    before, beside = gaps_beside_a_prompt(with_streams(cost), 4_000)
    assert p99(beside) <= 2.5 * p99(before)


@pytest.mark.parametrize("cost", COSTS.values(), ids=COSTS.keys())
def test_the_long_prompt_gets_about_half_of_the_time(cost: StepCost) -> None:
    simulation = with_streams(cost)
    gaps_beside_a_prompt(simulation, 4_000)
    assert simulation.records["long"].first_token_after_ns <= 2.2 * time_alone(cost, 4_000)


@pytest.mark.parametrize("cost", COSTS.values(), ids=COSTS.keys())
def test_a_long_prompt_is_safe_after_many_short_ones(cost: StepCost) -> None:
    """What a token costs behind thousands of others was never measured, or long ago."""
    simulation = with_streams(cost)
    step_ns = statistics.median(stream_gaps(simulation, 0))
    for number in range(60):
        request = make_request(f"q{number}", num_prompt=20, num_output=5)
        simulation.submit_at(simulation.now_ns + number * 3 * step_ns, request)
    run_until_streams_have(simulation, 400)
    before, beside = gaps_beside_a_prompt(simulation, 4_000)
    assert p99(beside) <= 2.5 * p99(before)


def test_a_short_rest_behind_a_long_cached_prefix_is_safe_too() -> None:
    simulation = Simulation(COSTS["attention"])
    shared = [i % 90 for i in range(4_000)]
    simulation.submit(make_request("first", num_prompt=4_000, num_output=1, shared=shared))
    simulation.run()
    for number in range(NUM_STREAMS):
        simulation.submit(make_request(f"s{number}", num_prompt=100, num_output=5_000))
    for number in range(60):
        request = make_request(f"q{number}", num_prompt=40, num_output=5)
        simulation.submit_at(simulation.now_ns + number * 60 * MS, request)
    run_until_streams_have(simulation, 400)
    now_ns, before = simulation.now_ns, stream_gaps(simulation, 0)[-20:]
    simulation.submit(make_request("long", num_prompt=4_500, num_output=1, shared=shared))
    run_until_answered(simulation, "long")
    assert p99(stream_gaps(simulation, now_ns)) <= 2.5 * p99(before)


class Disturbed:
    """A machine on which now and then a step takes ten times as long, a few times in a row."""

    def __init__(self, cost: StepCost) -> None:
        self._cost = cost
        self._random = random.Random(1)
        self._num_slow = 0
        self.mixed_ns: list[int] = []

    def __call__(self, batch: ScheduledBatch) -> int:
        self._num_slow = max(0, self._num_slow - 1)
        if self._random.random() < 0.03:
            self._num_slow = self._random.choice([1, 1, 6])
        step_ns = self._cost(batch)
        if StepShape.of(batch).num_prefill_tokens:
            self.mixed_ns.append(step_ns)
        return 10 * step_ns if self._num_slow else round(step_ns * self._random.uniform(0.9, 1.2))


def test_a_busy_neighbour_neither_swells_the_chunks_nor_starves_them() -> None:
    disturbed = Disturbed(COSTS["cpu"])
    simulation = Simulation(disturbed)
    for number in range(NUM_STREAMS):
        simulation.submit(make_request(f"s{number}", num_prompt=100, num_output=5_000))
    run_until_streams_have(simulation, 300)
    disturbed.mixed_ns.clear()
    simulation.submit(make_request("long", num_prompt=4_000, num_output=1))
    run_until_answered(simulation, "long")
    alone_ns = COSTS["cpu"](ScheduledBatch(0, ())) + NUM_STREAMS * 0.75 * MS
    assert p99(disturbed.mixed_ns) <= 2.5 * alone_ns
    assert statistics.median(disturbed.mixed_ns) >= 1.6 * alone_ns


def test_chunks_follow_a_machine_that_becomes_slower() -> None:
    """Decode twice as slow, prefill four times, in the middle of a prompt."""
    fast = COSTS["cpu"]
    slow = StepCost(base_ns=24 * MS, row_ns=1.5 * MS, token_ns=2 * MS, attend_ns=80)
    current = [fast]
    simulation = Simulation(lambda batch: current[0](batch))
    for number in range(NUM_STREAMS):
        simulation.submit(make_request(f"s{number}", num_prompt=100, num_output=5_000))
    run_until_streams_have(simulation, 100)
    simulation.submit(make_request("long", num_prompt=8_000, num_output=1))
    run_until_streams_have(simulation, 150)
    current[0] = slow
    run_until_streams_have(simulation, 250)
    step_ns = slow(ScheduledBatch(0, ())) + NUM_STREAMS * 1.5 * MS
    assert max(stream_gaps(simulation, 0)[-40:]) <= 2.5 * step_ns
    assert not simulation.records["long"].token_ns


def tokens_per_second(cost: StepCost) -> float:
    """Of sixteen clients with prompts that cost far more than the answers."""
    simulation = Simulation(cost)
    num_left = 64

    def next_request(_: str) -> None:
        nonlocal num_left
        if num_left:
            num_left -= 1
            request = make_request(f"r{num_left}", num_prompt=1_400, num_output=128)
            simulation.submit(request)

    simulation.on_end = next_request
    for number in range(16):
        simulation.submit(make_request(f"f{number}", num_prompt=1_400, num_output=128))
    simulation.run()
    return 80 * 128 / (simulation.now_ns / S)


def test_many_prompts_beside_few_streams_do_not_cost_the_throughput() -> None:
    """At best every prompt and every token is computed in full batches, and nothing waits."""
    cost = COSTS["cpu"]
    prompt_ns = time_alone(cost, 1_400)
    decode_ns = 128 * (cost.base_ns / 16 + cost.row_ns + 1_464 * cost.attend_ns)
    at_best = 128 / ((prompt_ns + decode_ns) / S)
    assert tokens_per_second(cost) >= 0.8 * at_best


def test_without_streams_a_prompt_takes_the_whole_budget_of_a_step() -> None:
    simulation = Simulation(COSTS["cpu"], config=RuntimeConfig(model="m", max_step_tokens=256))
    simulation.submit(make_request("long", num_prompt=2_560, num_output=1))
    simulation.run()
    assert simulation.engine.stats().steps == 10
