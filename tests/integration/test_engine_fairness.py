"""Several tenants in simulated time: what one's flood does to another, and what it must not."""

import itertools
import random
from dataclasses import dataclass

import pytest

from runtime.config import RuntimeConfig
from runtime.fairness import INPUT_WEIGHT, OUTPUT_WEIGHT
from runtime.messages import EngineStats
from tests.engine_harness import EngineHarness, alone, make_submit
from tests.fake_grammar import scripted
from tests.grammar_harness import MakeHarness
from tests.simulation import MS, Record, S, Simulation, StepCost, make_request

# Like those of the native step, of a GPU, of a slow model, and of costly attention.
COSTS = {
    "native": StepCost(base_ns=2.5 * MS, row_ns=0.42 * MS, token_ns=0.24 * MS, attend_ns=50),
    "gpu": StepCost(base_ns=MS, row_ns=0.04 * MS, token_ns=0.04 * MS, floor_ns=8 * MS),
    "slow": StepCost(base_ns=100 * MS, row_ns=10 * MS, token_ns=8 * MS, attend_ns=100),
    "attention": StepCost(base_ns=12 * MS, row_ns=0.3 * MS, token_ns=0.2 * MS, attend_ns=200),
}
PROMPT_LEN = 300
# In place of a client's: a request that a test sends itself.
LATE = -1


@dataclass(frozen=True)
class Client:
    """So many send a request when their last one has ended, after up to twice `think_s`. Lengths
    vary by half."""

    tenant: str
    number: int
    num_prompt: int
    num_output: int
    think_s: float = 0.0


class Crowd:
    """Closed loops of clients in simulated time. A request's id begins with its client's place."""

    def __init__(
        self,
        *clients: Client,
        cost: StepCost = COSTS["native"],
        num_pages: int = 20_000,
        max_running: int = 16,
    ) -> None:
        config = RuntimeConfig(model="simulated", max_running=max_running)
        self.simulation = Simulation(cost, num_pages=num_pages, config=config)
        self.simulation.on_end = self._send_next
        self._clients = clients
        self._numbers = itertools.count()
        self._rng = random.Random(3)
        for place, client in enumerate(clients):
            for _ in range(client.number):
                self._send(place)

    def run(self, seconds: float) -> None:
        self.simulation.run(until_ns=self.simulation.now_ns + seconds * S)

    def records(self, place: int) -> list[Record]:
        """Of those that have a token at least."""
        records = self.simulation.records
        return [one for name, one in records.items() if _place(name) == place and one.token_ns]

    def weighted_tokens(self, place: int) -> int:
        records = self.records(place)
        num_input = len(records) * self._clients[place].num_prompt
        return INPUT_WEIGHT * num_input + OUTPUT_WEIGHT * sum(len(one.token_ns) for one in records)

    @property
    def stats(self) -> EngineStats:
        return self.simulation.engine.stats()

    def _send_next(self, request_id: str) -> None:
        if _place(request_id) != LATE:
            self._send(_place(request_id))

    def _send(self, place: int) -> None:
        client = self._clients[place]
        request = make_request(
            f"{place}.{next(self._numbers)}",
            num_prompt=self._vary(client.num_prompt),
            num_output=self._vary(client.num_output),
            tenant=client.tenant,
        )
        wait_ns = client.think_s * self._rng.uniform(0, 2) * S
        self.simulation.submit_at(self.simulation.now_ns + wait_ns, request)

    def _vary(self, length: int) -> int:
        return max(1, round(length * self._rng.uniform(0.5, 1.5)))


def _place(request_id: str) -> int:
    return int(request_id.split(".")[0])


def ttft_beside_a_flood(
    cost: StepCost,
    *,
    tenant: str,
    num_output: int,
    num_pages: int = 20_000,
    num_streams: int = 0,
) -> list[float]:
    """Of twelve requests of PROMPT_LEN tokens each that come one by one, at any moments, while 32
    clients of tenant "flood" send; each as a multiple of what it takes without them. So many
    streams of `tenant` run all the time."""
    alone = Simulation(cost)
    alone.submit(make_request("alone", num_prompt=PROMPT_LEN, num_output=1))
    alone.run()
    alone_ns = alone.records["alone"].first_token_after_ns
    flood = Client("flood", 32, num_prompt=PROMPT_LEN, num_output=num_output)
    streams = Client(tenant, num_streams, num_prompt=10, num_output=4_000)
    crowd = Crowd(flood, streams, cost=cost, num_pages=num_pages)
    simulation, rng = crowd.simulation, random.Random(5)
    crowd.run(30 * alone_ns / S)
    for number in range(12):
        name = f"{LATE}.{number}"
        at_ns = simulation.now_ns + rng.uniform(0, 10) * alone_ns
        request = make_request(name, num_prompt=PROMPT_LEN, num_output=16, tenant=tenant)
        simulation.submit_at(at_ns, request)
        while simulation.records[name].last is None:
            simulation.run(until_ns=simulation.now_ns + 1)
    return [record.first_token_after_ns / alone_ns for record in crowd.records(LATE)]


@pytest.mark.parametrize("num_output", [128, 600])
@pytest.mark.parametrize("name", COSTS)
def test_a_flood_leaves_another_tenant_its_time_to_first_token(name: str, num_output: int) -> None:
    found = ttft_beside_a_flood(COSTS[name], tenant="other", num_output=num_output)
    assert max(found) <= 2.0


def test_so_it_does_where_the_other_has_streams_already() -> None:
    found = ttft_beside_a_flood(COSTS["native"], tenant="other", num_output=600, num_streams=2)
    assert max(found) <= 2.0


def test_a_flood_that_takes_all_memory_does_too() -> None:
    """Of 16 that have a slot six fit; whoever comes finds no page that is not spoken for."""
    found = ttft_beside_a_flood(COSTS["native"], tenant="other", num_output=300, num_pages=220)
    assert max(found) <= 2.0


def test_within_one_tenant_a_flood_is_a_queue() -> None:
    found = ttft_beside_a_flood(COSTS["native"], tenant="flood", num_output=128)
    assert min(found) >= 4.0


def test_streams_of_the_flood_go_on_beside_the_other_tenant() -> None:
    flood = Client("flood", 32, num_prompt=300, num_output=128)
    other = Client("other", 1, num_prompt=300, num_output=16, think_s=0.5)
    by_itself, disturbed = Crowd(flood), Crowd(flood, other)
    for crowd in (by_itself, disturbed):
        crowd.run(12)
    rates = [len(crowd.records(0)) for crowd in (by_itself, disturbed)]
    gaps = sorted(gap for record in disturbed.records(0) for gap in record.gaps_ns())
    assert rates[1] >= 0.85 * rates[0]
    assert gaps[int(0.99 * len(gaps))] <= 5 * gaps[len(gaps) // 2]


def test_two_floods_share_evenly_and_take_hardly_a_place_from_each_other() -> None:
    crowd = Crowd(
        Client("a", 32, num_prompt=1_000, num_output=20),
        Client("b", 32, num_prompt=20, num_output=300),
    )
    crowd.run(40)
    served = [crowd.weighted_tokens(place) for place in range(2)]
    assert max(served) <= 1.1 * min(served)
    assert crowd.stats.fair_preemptions <= 0.1 * len(crowd.records(0) + crowd.records(1))


def test_a_small_tenant_has_what_it_asks_for_and_the_flood_the_rest() -> None:
    crowd = Crowd(
        Client("flood", 32, num_prompt=300, num_output=128),
        Client("small", 2, num_prompt=100, num_output=30, think_s=0.2),
        Client("middle", 4, num_prompt=300, num_output=64, think_s=0.5),
    )
    crowd.run(25)
    flood, small, middle = (crowd.weighted_tokens(place) for place in range(3))
    waits = [record.first_token_after_ns / MS for record in crowd.records(1)]
    assert flood > middle > small
    assert sorted(waits)[len(waits) // 2] <= 80


def test_beside_many_that_come_and_go_each_tenant_gets_on() -> None:
    """Whenever one of six tenants is answered a new one comes, each with a request of 80 tokens,
    and four have a slot; the old tenant's requests count ten times as much."""
    crowd = Crowd(Client("old", 1, num_prompt=1_000, num_output=10), max_running=4)
    numbers = itertools.count()

    def send_new(name: str) -> None:
        crowd._send_next(name)
        if _place(name) == LATE:
            number = next(numbers)
            name, tenant = f"{LATE}.{number}", f"new{number}"
            request = make_request(name, num_prompt=60, num_output=20, tenant=tenant)
            crowd.simulation.submit(request)

    crowd.run(1)
    num_before = len(crowd.records(0))
    crowd.simulation.on_end = send_new
    for _ in range(6):
        send_new(f"{LATE}.")
    crowd.run(30)
    old = crowd.records(0)[num_before:]
    assert len(old) >= 6
    assert max(record.first_token_after_ns for record in old) <= 8 * S


def test_what_fairness_makes_be_computed_again_is_less_than_what_is_new() -> None:
    """A pool in which nothing of a preempted sequence is left when it comes back, and a tenant
    that comes again and again."""
    crowd = Crowd(
        Client("flood", 16, num_prompt=600, num_output=400),
        Client("other", 1, num_prompt=300, num_output=4, think_s=0.05),
        num_pages=150,
    )
    crowd.run(30)
    stats = crowd.stats
    assert stats.fair_preemptions >= 10
    computed = stats.computed_prompt_tokens + stats.generated_tokens
    assert stats.recomputed_tokens <= computed


def test_one_tenant_whatever_its_name_preempts_nobody_for_fairness() -> None:
    for tenant in ("", "a"):
        crowd = Crowd(Client(tenant, 40, num_prompt=300, num_output=128), num_pages=300)
        crowd.run(10)
        assert crowd.stats.preemptions > 0
        assert crowd.stats.fair_preemptions == 0


def test_who_gives_his_place_up_gets_the_tokens_he_gets_alone() -> None:
    harness = EngineHarness(max_running=4, num_pages=40)
    requests = [
        make_submit(f"a{number}", [number] * 40, max_tokens=60, tenant="a") for number in range(6)
    ]
    requests += [
        make_submit(f"b{number}", [number, 9] * 20, max_tokens=3, tenant="b") for number in range(8)
    ]
    for number, request in enumerate(requests):
        harness.submit(request)
        for _ in range(10 if number >= 5 else 1):
            harness.step()
    harness.run()
    assert harness.stats.fair_preemptions >= 4
    for request in requests:
        assert harness.answer(request.request_id).token_ids == alone(request)
    harness.assert_idle()


def test_whoever_leaves_at_any_moment_leaves_nothing_and_the_others_get_their_tokens() -> None:
    rng = random.Random(1)
    num_preempted = 0
    for _ in range(25):
        harness = EngineHarness(num_pages=rng.choice([12, 20]), max_running=rng.randint(2, 5))
        left = {}
        for number in range(12):
            request = make_submit(
                f"r{number}",
                [*range(rng.randint(0, 80)), rng.randint(81, 84)],
                max_tokens=rng.randint(1, 30),
                tenant=rng.choice("aaab"),
            )
            left[request.request_id] = request
            harness.submit(request)
            for _ in range(rng.choice([0, 0, 1, 4])):
                harness.step()
            if number % 4 == 3:
                gone = left.pop(rng.choice(list(left)))
                harness.abort(gone.request_id)
        harness.run()
        harness.assert_idle()
        for request_id, request in left.items():
            assert harness.answer(request_id).token_ids == alone(request)
        num_preempted += harness.stats.fair_preemptions
    assert num_preempted >= 10


def test_a_grammar_goes_on_where_a_place_was_given_up(make_grammar_harness: MakeHarness) -> None:
    script = scripted(*([10 + number % 7, 20 + number % 5] for number in range(50)))
    found = []
    for tenant in ("a", "b"):
        harness = make_grammar_harness(num_pages=24)
        for number in range(16):
            request = make_submit(
                f"a{number}", [number] * 3, max_tokens=90, constraint=script, tenant="a"
            )
            harness.submit(request)
        harness.wait_for_build()
        for number in range(6):
            for _ in range(6):
                harness.step()
            late = make_submit(f"late{number}", [number] * 5, max_tokens=2, tenant=tenant)
            harness.submit(late)
        harness.run()
        answers = [harness.answer(f"a{number}") for number in range(16)]
        found.append([(one.token_ids, one.finish_reason) for one in answers])
        assert (harness.stats.fair_preemptions > 0) == (tenant == "b")
    assert found[0] == found[1]
    assert all(len(token_ids) == 50 for token_ids, _ in found[0])
