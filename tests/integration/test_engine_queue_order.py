"""Who comes first when many wait, in simulated time."""

import statistics

from runtime.config import RuntimeConfig
from tests.simulation import MS, S, Simulation, StepCost, make_request

COST = StepCost(base_ns=12 * MS, row_ns=0.75 * MS, token_ns=0.5 * MS, attend_ns=20)
PREFIXES = [[(i * step) % 90 for i in range(960)] for step in (7, 11)]


def simulate(
    *, max_overtaking_s: float, num_pages: int = 4_000, max_running: int = 4
) -> Simulation:
    config = RuntimeConfig(
        model="simulated", max_running=max_running, max_overtaking_s=max_overtaking_s
    )
    return Simulation(COST, num_pages=num_pages, config=config)


def wait_of_a_cold_request(*, max_overtaking_s: float) -> float:
    """Seconds that it waits behind warm requests, of which there are always a dozen."""
    simulation = simulate(max_overtaking_s=max_overtaking_s)
    num_sent = 0

    def send_warm(_: str) -> None:
        nonlocal num_sent
        num_sent += 1
        shared = PREFIXES[0]
        request = make_request(f"w{num_sent}", num_prompt=990, num_output=10, shared=shared)
        simulation.submit(request)

    simulation.on_end = send_warm
    for _ in range(16):
        send_warm("")
    simulation.run(until_ns=3 * S)
    simulation.submit(make_request("cold", num_prompt=2_000, num_output=1))
    simulation.run(until_ns=60 * S)
    record = simulation.records["cold"]
    admitted_ns = record.admitted_ns or simulation.now_ns
    return (admitted_ns - record.submitted_ns) / S


def test_a_cold_request_behind_endless_warm_ones_starts_within_its_age_limit() -> None:
    """And then as soon as one of four slots is free."""
    for max_overtaking_s in (0.5, 2.0, 8.0):
        wait_s = wait_of_a_cold_request(max_overtaking_s=max_overtaking_s)
        assert max_overtaking_s <= wait_s <= max_overtaking_s + 0.5


def test_without_the_limit_it_would_never_start() -> None:
    assert wait_of_a_cold_request(max_overtaking_s=1e6) >= 50


def alternating_prefixes(*, max_overtaking_s: float) -> Simulation:
    """Two long prefixes by turns, in a pool that holds one of them beside what runs."""
    simulation = simulate(max_overtaking_s=max_overtaking_s, num_pages=110)
    for number in range(40):
        shared = PREFIXES[number % 2]
        request = make_request(f"r{number}", num_prompt=1_000, num_output=20, shared=shared)
        simulation.submit(request)
    simulation.run()
    return simulation


def test_a_cached_prefix_is_used_up_before_another_takes_its_pages() -> None:
    in_turn = alternating_prefixes(max_overtaking_s=0).engine.stats()
    ordered = alternating_prefixes(max_overtaking_s=1e6).engine.stats()
    assert ordered.computed_prompt_tokens <= 0.3 * in_turn.computed_prompt_tokens
    assert ordered.prompt_tokens == in_turn.prompt_tokens == 40_000


def median_wait_of_short_prompts(*, max_overtaking_s: float) -> float:
    simulation = simulate(max_overtaking_s=max_overtaking_s, max_running=16)
    for number in range(4):
        simulation.submit(make_request(f"long{number}", num_prompt=4_000, num_output=20))
    for number in range(8):
        request = make_request(f"short{number}", num_prompt=40, num_output=20)
        simulation.submit_at((0.3 + 0.2 * number) * S, request)
    simulation.run()
    return statistics.median(
        simulation.records[f"short{number}"].first_token_after_ns for number in range(8)
    )


def test_short_prompts_do_not_wait_for_long_ones_to_be_computed() -> None:
    waits_ns = [median_wait_of_short_prompts(max_overtaking_s=limit) for limit in (0, 30)]
    assert waits_ns[1] <= 0.5 * S <= 4 * S <= waits_ns[0]
