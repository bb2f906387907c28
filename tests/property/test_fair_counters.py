"""The counters of tenants against a model that forgets nothing, and what two that always have work
are served, against the bound of the paper."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.fairness import INPUT_WEIGHT, OUTPUT_WEIGHT, TenantCounters
from runtime.messages import TokenEvent
from tests.engine_harness import PAGE_SIZE, EngineHarness, make_submit

MAX_LEAD = 300.0
TENANTS = "abcd"

Operation = tuple[str, str, float]
operations = st.lists(
    st.tuples(
        st.sampled_from(["join", "join", "start", "start", "leave", "stop", "serve"]),
        st.sampled_from(TENANTS),
        st.sampled_from([1.0, 2.0, 50.0, 400.0]),
    ),
    max_size=80,
)


@dataclass
class NaiveCounters:
    """The same rules, with every tenant's counter kept and every sum taken anew."""

    served: dict[str, float] = field(default_factory=lambda: dict.fromkeys(TENANTS, 0.0))
    waiting: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TENANTS, 0))
    running: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TENANTS, 0))
    order: list[str] = field(default_factory=list)
    floor: float = 0.0
    total: float = 0.0
    total_seen: float = 0.0
    last: str | None = None

    def active(self) -> set[str]:
        return {one for one in TENANTS if self.waiting[one] + self.running[one]}

    def lift(self) -> None:
        """The floor as of now."""
        waiting = [one for one in TENANTS if self.waiting[one]]
        if waiting:
            self.floor = max(self.floor, min(self.served[one] for one in waiting))
        elif self.last is not None:
            self.floor = max(self.floor, self.served[self.last])
        hungry = [one for one in self.order if self.waiting[one] and not self.running[one]]
        if hungry:
            even = (self.total - self.total_seen) / len(self.active())
            self.floor = max(self.floor, min(self.floor + even, self.served[hungry[0]]))
        self.total_seen = self.total

    def apply(self, kind: str, tenant: str, tokens: float) -> None:
        match kind:
            case "join":
                if not self.waiting[tenant]:
                    self.lift()
                    lifted = max(self.served[tenant], self.floor)
                    self.served[tenant] = min(lifted, self.floor + MAX_LEAD)
                    self.order = [*(one for one in self.order if one != tenant), tenant]
                self.waiting[tenant] += 1
            case "start":
                self.lift()
                self.last = tenant
                self.waiting[tenant] -= 1
                self.running[tenant] += 1
            case "leave":
                self.waiting[tenant] -= 1
            case "stop":
                self.running[tenant] -= 1
            case "serve":
                self.served[tenant] += tokens
                self.total += tokens

    def can(self, kind: str, tenant: str) -> bool:
        needed = {"start": self.waiting, "leave": self.waiting, "stop": self.running}
        if kind == "serve":
            return tenant in self.active()
        return kind == "join" or needed[kind][tenant] > 0


def apply(counters: TenantCounters, kind: str, tenant: str, tokens: float) -> None:
    match kind:
        case "join":
            counters.joined(tenant)
        case "start":
            counters.started(tenant)
        case "leave":
            counters.left(tenant)
        case "stop":
            counters.stopped(tenant)
        case "serve":
            counters.charge(tenant, tokens)


@settings(max_examples=300, deadline=None)
@given(operations)
def test_what_is_forgotten_makes_no_difference(workload: list[Operation]) -> None:
    counters, naive = TenantCounters(max_lead=MAX_LEAD), NaiveCounters()
    for kind, tenant, tokens in workload:
        if not naive.can(kind, tenant):
            continue
        apply(counters, kind, tenant, tokens)
        naive.apply(kind, tenant, tokens)
        served = {name: account.served for name, account in counters.active.items()}
        assert served == {name: naive.served[name] for name in naive.active()}
        num_above = sum(naive.served[one] > naive.floor for one in set(TENANTS) - naive.active())
        assert counters.num_remembered >= num_above


@dataclass(frozen=True)
class Load:
    """One tenant's requests, by turns of these lengths; there are always `num_waiting` more."""

    prompt_lens: list[int]
    output_lens: list[int]
    num_waiting: int


loads = st.builds(
    Load,
    prompt_lens=st.lists(st.integers(1, 90), min_size=1, max_size=3),
    output_lens=st.lists(st.integers(1, 60), min_size=1, max_size=3),
    num_waiting=st.integers(6, 12),
)


class Backlog:
    """Keeps one tenant's queue full, and adds up what it was served."""

    def __init__(self, harness: EngineHarness, tenant: str, load: Load) -> None:
        self._harness = harness
        self._tenant = tenant
        self._load = load
        self._num_sent = 0
        self._num_admitted = 0
        self.weighted_tokens = 0

    def fill(self) -> None:
        while self._num_sent - self._num_admitted < self._load.num_waiting:
            self._send()

    def count(self, event: TokenEvent) -> None:
        """A prompt counts when its first token comes: then it is computed."""
        self._num_admitted += event.admitted
        num_output = len(event.token_ids)
        self.weighted_tokens += OUTPUT_WEIGHT * num_output
        if num_output and len(self._harness.answer(event.request_id).token_ids) == num_output:
            number = int(event.request_id.removeprefix(self._tenant))
            lens = self._load.prompt_lens
            self.weighted_tokens += INPUT_WEIGHT * lens[number % len(lens)]

    def _send(self) -> None:
        number, load = self._num_sent, self._load
        self._num_sent += 1
        num_prompt = load.prompt_lens[number % len(load.prompt_lens)]
        request = make_submit(
            f"{self._tenant}{number}",
            [(number + index) % 90 for index in range(num_prompt)],
            max_tokens=load.output_lens[number % len(load.output_lens)],
            tenant=self._tenant,
            use_cache=False,
        )
        self._harness.submit(request)


@settings(max_examples=10, deadline=None)
@given(
    loads=st.tuples(loads, loads),
    num_pages=st.sampled_from([16, 24, 100]),
    max_running=st.integers(2, 6),
    max_step_tokens=st.sampled_from([8, 64, 256]),
)
def test_two_that_always_have_work_are_served_the_same_within_the_bound(
    loads: tuple[Load, Load], num_pages: int, max_running: int, max_step_tokens: int
) -> None:
    """The paper bounds the difference over any time by twice the larger of a prompt's weight and
    that of all that can run at once. As places move too, half of that does here, with the quantum
    of turns on top; a prompt counts when all of it is computed."""
    harness = EngineHarness(
        num_pages=num_pages, max_running=max_running, max_step_tokens=max_step_tokens
    )
    backlogs = {
        tenant: Backlog(harness, tenant, load) for tenant, load in zip("ab", loads, strict=True)
    }
    differences = [0]
    for _ in range(300):
        for backlog in backlogs.values():
            backlog.fill()
        for event in harness.step():
            backlogs[event.request_id[0]].count(event)
        left, right = (backlog.weighted_tokens for backlog in backlogs.values())
        differences.append(left - right)
    in_memory = min(num_pages * PAGE_SIZE, max_running * (90 + 60))
    bound = max(INPUT_WEIGHT * 90, OUTPUT_WEIGHT * in_memory) + max_step_tokens
    assert max(differences) - min(differences) <= bound
