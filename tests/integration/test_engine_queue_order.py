"""Who comes first when many wait, in simulated time."""

import pytest

from runtime.config import RuntimeConfig
from runtime.messages import Sampling
from runtime.waiting import MAX_DEBT_NS
from tests.engine_harness import make_submit
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


def waits_of_cold_requests(
    num_cold: int, *, max_overtaking_s: float, num_warm_tokens: int
) -> list[float]:
    """Seconds that each waits behind warm requests, of which there are always a dozen, with so
    many tokens to compute."""
    simulation = simulate(max_overtaking_s=max_overtaking_s)
    cold = [f"cold{number}" for number in range(num_cold)]
    num_sent = 0

    def send_warm() -> None:
        nonlocal num_sent
        num_sent += 1
        shared = PREFIXES[0]
        num_prompt = len(shared) + num_warm_tokens
        request = make_request(f"w{num_sent}", num_prompt=num_prompt, num_output=10, shared=shared)
        simulation.submit(request)

    simulation.on_end = lambda request_id: None if request_id in cold else send_warm()
    for _ in range(16):
        send_warm()
    simulation.run(until_ns=3 * S)
    for request_id in cold:
        simulation.submit(make_request(request_id, num_prompt=2_000, num_output=1))
    simulation.run(until_ns=60 * S)
    records = [simulation.records[request_id] for request_id in cold]
    return [((one.admitted_ns or simulation.now_ns) - one.submitted_ns) / S for one in records]


def wait_of_a_cold_request(*, max_overtaking_s: float) -> float:
    (wait_s,) = waits_of_cold_requests(1, max_overtaking_s=max_overtaking_s, num_warm_tokens=30)
    return wait_s


def test_a_cold_request_behind_endless_warm_ones_starts_within_its_age_limit() -> None:
    """And then as soon as one of four slots is free; 0.5 s is far more than that takes."""
    for max_overtaking_s in (0.5, 2.0, 8.0):
        wait_s = wait_of_a_cold_request(max_overtaking_s=max_overtaking_s)
        assert max_overtaking_s <= wait_s <= max_overtaking_s + 0.5


def test_cold_requests_start_by_turns_however_little_the_warm_ones_compute() -> None:
    waits_s = waits_of_cold_requests(3, max_overtaking_s=2.0, num_warm_tokens=2)
    turn_s = MAX_DEBT_NS / S + 1.5  # 2,000 tokens take a good second
    longest_s = [2.5 + number * turn_s for number in range(3)]
    assert all(wait <= longest for wait, longest in zip(waits_s, longest_s, strict=True))
    assert waits_s[2] - waits_s[1] > MAX_DEBT_NS / S


def test_without_the_limit_it_would_never_start() -> None:
    assert wait_of_a_cold_request(max_overtaking_s=1e6) >= 50


@pytest.mark.parametrize("max_overtaking_s", [0, 2, 1e6])
def test_a_cached_prefix_is_used_up_before_another_takes_its_pages(
    max_overtaking_s: float,
) -> None:
    """Two long prefixes by turns, in a pool that holds one of them beside what runs. In the order
    of arrival 12,000 tokens are computed."""
    simulation = simulate(max_overtaking_s=max_overtaking_s, num_pages=110)
    for number in range(40):
        shared = PREFIXES[number % 2]
        request = make_request(f"r{number}", num_prompt=1_000, num_output=20, shared=shared)
        simulation.submit(request)
    simulation.run()
    stats = simulation.engine.stats()
    assert stats.prompt_tokens == 40_000
    assert stats.computed_prompt_tokens <= 6_000


def test_conversations_that_do_not_fit_together_do_not_all_lose_their_prefixes() -> None:
    """Twelve agents send the next turn at once, and wait far longer than the age limit; in the
    order of arrival each turn would find its pages taken."""
    simulation = simulate(max_overtaking_s=2.0, num_pages=300, max_running=16)
    histories = {client: [client, *PREFIXES[0][:900]] for client in range(12)}

    def next_turn(request_id: str) -> None:
        client, turn = (int(number) for number in request_id.split("."))
        histories[client] += [1] * 60 + [turn] * 100
        if turn < 5:
            send(client, turn + 1)

    def send(client: int, turn: int) -> None:
        sampling = Sampling(max_tokens=60, ignore_eos=True)
        request = make_submit(f"{client}.{turn}", histories[client], sampling=sampling)
        simulation.submit(request)

    simulation.on_end = next_turn
    for client in range(12):
        send(client, 0)
    simulation.run()
    stats = simulation.engine.stats()
    assert stats.generated_tokens == 12 * 6 * 60
    assert stats.computed_prompt_tokens <= 0.4 * stats.prompt_tokens


def test_short_prompts_do_not_wait_for_long_ones_to_be_computed() -> None:
    simulation = simulate(max_overtaking_s=30, max_running=16)
    for number in range(4):
        simulation.submit(make_request(f"long{number}", num_prompt=4_000, num_output=20))
    for number in range(8):
        request = make_request(f"short{number}", num_prompt=40, num_output=20)
        simulation.submit_at((0.3 + 0.2 * number) * S, request)
    simulation.run()
    after_ns = {name: one.first_token_after_ns for name, one in simulation.records.items()}
    assert max(after_ns[f"short{number}"] for number in range(8)) <= S
    assert max(after_ns[f"long{number}"] for number in range(4)) >= 8 * S
